#include "data/tokenizer/formats/gguf_vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/formats/file_names.hpp"
#include "data/tokenizer/formats/gguf_tokenizer.hpp"
#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/models/bpe.hpp"
#include "data/tokenizer/text/byte_level.hpp"
#include "data/tokenizer/text/known_patterns.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr std::uint64_t kFileLimitBytes = std::uint64_t{256} << 20;
constexpr std::string_view kSpaceMark = "\u2581";

// Types of tokens in the file.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;

/// Tokens by id, in the making.
struct Tokens {
  Texts texts;
  std::vector<std::int32_t> types;
  std::vector<float> scores;

  explicit Tokens(std::int64_t count) {
    for (std::int64_t id = 0; id < count; ++id) {
      texts.push_back(fmt::format("[PAD{}]", id));
    }
    types.assign(texts.size(), kUnused);
    scores.assign(texts.size(), kPadScore);
  }
  void set(std::size_t id, std::string text, std::int32_t type, float score = 0.0F) {
    texts[id] = std::move(text);
    types[id] = type;
    scores[id] = score;
  }
  static constexpr float kPadScore = -10000.0F;
  static constexpr float kAddedScore = -1000.0F;
};

/// JSON file of a directory; null: there is none.
Result<json> read_json(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return json();
  }
  const std::string text = TRAIN_TRY(storage::read_file(path, kFileLimitBytes));
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) {
    return user_error(fmt::format("{} is no JSON", path.string()));
  }
  return value;
}

/// The files of a tokenizer.
struct Sources {
  fs::path directory;
  json tokenizer = {}, settings = {};
};

/// Some models mark control tokens as ordinary ones, which llama.cpp's converter knows by their
/// form.
bool looks_special(std::string_view text) {
  const auto framed = [text](std::string_view begin, std::string_view end) {
    return text.starts_with(begin) && text.ends_with(end);
  };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         framed("<|", "|>") || framed("<\uFF5C", "\uFF5C>") || framed("<unused", ">");
}

/// The text with `to` in the place of each `from`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool found = text.substr(at).starts_with(from);
    result.append(found ? to : text.substr(at, 1));
    at += found ? from.size() : 1;
  }
  return result;
}

Error too_many(const Sources& sources, std::size_t id, std::size_t rows) {
  return user_error(fmt::format("{}: token {} is beyond the model's {} rows of the embedding",
                                sources.directory.string(), id, rows));
}

/// Sets the tokens of added_tokens and added_tokens_decoder, which no merge makes.
Status add_added(const Sources& sources, Tokens& tokens) {
  std::map<std::size_t, std::pair<std::string, bool>> added;
  for (const json& token : json_member(sources.tokenizer, "added_tokens")) {
    if (const auto id = json_count(token, "id")) {
      added[*id] = {json_text(token, "content").value_or(""), json_flag(token, "special", false)};
    }
  }
  const json& decoder = json_member(sources.settings, "added_tokens_decoder");
  for (auto entry = decoder.begin(); decoder.is_object() && entry != decoder.end(); ++entry) {
    std::size_t id = 0;
    const char* end = entry.key().data() + entry.key().size();
    if (std::from_chars(entry.key().data(), end, id).ptr == end) {
      added[id] = {json_text(*entry, "content").value_or(""), json_flag(*entry, "special", false)};
    }
  }
  for (const auto& [id, token] : added) {
    if (id >= tokens.texts.size()) {
      return too_many(sources, id, tokens.texts.size());
    }
    const bool control = token.second || looks_special(token.first);
    tokens.set(id, control ? token.first : replaced(token.first, kSpaceMark, " "),
               control ? kControl : kUserDefined, Tokens::kAddedScore);
  }
  return {};
}

/// Name of a pre-tokenizer of one pattern; nullptr: llama.cpp has none.
const char* name_of(KnownPattern pattern, bool whole_words) {
  switch (pattern) {
    case KnownPattern::gpt2:
      return whole_words ? nullptr : "gpt-2";
    case KnownPattern::cl100k:
      return whole_words ? "llama-bpe" : "smaug-bpe";
    case KnownPattern::qwen2:
      return whole_words ? nullptr : "qwen2";
    case KnownPattern::qwen35:
      return whole_words ? nullptr : "qwen35";
    case KnownPattern::o200k:
      return whole_words ? nullptr : "gpt-4o";
    case KnownPattern::tekken:
      return whole_words ? "tekken" : nullptr;
    default:
      return nullptr;
  }
}

/// The pattern of a Split; empty: it is another section.
std::string pattern_of(const json& section) {
  return json_text(section, "type") == "Split" && json_text(section, "behavior") == "Isolated" &&
                 !json_flag(section, "invert", false)
             ? json_text(json_member(section, "pattern"), "Regex").value_or("")
             : "";
}

/// Halves of a merge: "a b", or a list of two. Empty ones: it is neither.
Bpe::MergeTexts halves_of(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (!merge.is_string()) {
    return {};
  }
  const std::string_view text = merge.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  return space == text.npos ? Bpe::MergeTexts{}
                            : Bpe::MergeTexts{text.substr(0, space), text.substr(space + 1)};
}

/// True if merges make every token of its own bytes, but those that are cut out of a text before:
/// then a word that is a token is the same one whether it is taken whole or merged.
bool merges_make_all(const json& tokenizer) {
  const json& model = json_member(tokenizer, "model");
  std::set<std::size_t> added;
  for (const json& token : json_member(tokenizer, "added_tokens")) {
    added.insert(json_count(token, "id").value_or(0));
  }
  Vocabulary vocabulary;
  const json& vocab = json_member(model, "vocab");
  for (auto entry = vocab.begin(); vocab.is_object() && entry != vocab.end(); ++entry) {
    if (entry->is_number_unsigned()) {
      vocabulary.add(entry.key(), entry->get<std::uint32_t>());
    }
  }
  std::vector<Bpe::MergeTexts> merges;
  for (const json& merge : json_member(model, "merges")) {
    merges.push_back(halves_of(merge));
  }
  BpeOptions options;
  options.byte_level = true;
  const auto bpe = Bpe::from_merges(std::move(vocabulary), merges, std::move(options));
  Bpe::Scratch scratch;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; bpe.ok() && id < bpe->vocabulary().id_limit(); ++id) {
    const auto bytes =
        added.contains(id) ? std::nullopt : from_byte_level(bpe->vocabulary().text(id));
    if (!bpe->vocabulary().has(id) || !bytes) {
      continue;
    }
    ids.clear();
    bpe->encode(*bytes, ids, scratch);
    if (ids.size() != 1 || ids.front() != id) {
      return false;
    }
  }
  return bpe.ok();
}

/// llama.cpp's name of the way text is split before merges, of a tokenizer that takes words of its
/// vocabulary whole or does not; nullptr: it has none.
const char* splitting_name(const json& tokenizer, bool whole_words) {
  std::vector<json> sections;
  const Status all = for_each_in_sequence(json_member(tokenizer, "pre_tokenizer"), "pretokenizers",
                                          [&sections](const json& section) -> Status {
                                            sections.push_back(section);
                                            return {};
                                          });
  if (!all || sections.empty() || json_text(sections.back(), "type") != "ByteLevel" ||
      json_flag(sections.back(), "add_prefix_space", true)) {
    return nullptr;
  }
  const bool splits = json_flag(sections.back(), "use_regex", true);
  if (sections.size() == 1) {
    return splits && !whole_words ? "gpt-2" : nullptr;
  }
  if (sections.size() == 2 && json_text(sections[0], "type") == "Digits") {
    return splits && !whole_words && json_flag(sections[0], "individual_digits", false) ? "smollm"
                                                                                        : nullptr;
  }
  std::vector<std::optional<KnownPattern>> patterns;
  for (std::size_t i = 0; i + 1 < sections.size(); ++i) {
    patterns.push_back(known_pattern(pattern_of(sections[i])));
  }
  if (splits) {
    return nullptr;
  }
  if (patterns.size() == 1 && patterns[0]) {
    return name_of(*patterns[0], whole_words);
  }
  const bool deepseek = patterns.size() == 3 && patterns[0] == KnownPattern::digits3 &&
                        patterns[1] == KnownPattern::han_kana &&
                        patterns[2] == KnownPattern::deepseek_words;
  return deepseek && !whole_words ? "deepseek-v3" : nullptr;
}

/// A merge as one text, "a b", as older files have it.
std::string merge_text(const json& merge) {
  if (merge.is_string()) {
    return merge.get<std::string>();
  }
  std::string text;
  for (const json& half : merge) {
    text.append(text.empty() ? "" : " ");
    // A space in the alphabet of bytes.
    text.append(replaced(half.is_string() ? half.get<std::string>() : "", " ", "\u0120"));
  }
  return text;
}

/// Special tokens by the name of their key: "bos" and so on.
using SpecialIds = std::map<std::string, std::uint32_t>;

constexpr std::array kSpecialKeys = {
    std::pair{"bos", "tokenizer.ggml.bos_token_id"},
    std::pair{"eos", "tokenizer.ggml.eos_token_id"},
    std::pair{"unk", "tokenizer.ggml.unknown_token_id"},
    std::pair{"sep", "tokenizer.ggml.seperator_token_id"},  // Spelled so in the format.
    std::pair{"pad", "tokenizer.ggml.padding_token_id"},
    std::pair{"mask", "tokenizer.ggml.mask_token_id"},
    std::pair{"eot", "tokenizer.ggml.eot_token_id"},
    std::pair{"eom", "tokenizer.ggml.eom_token_id"}};

/// Tokens of GLM, whose files name no more than a padding and an end of text: its turns end where
/// another begins.
constexpr std::array kGlmTokens = {std::pair{"bos", "[gMASK]"}, std::pair{"eot", "<|user|>"},
                                   std::pair{"eom", "<|observation|>"},
                                   std::pair{"unk", "<|endoftext|>"}};

/// Text of a special token in tokenizer_config.json, a string or an object.
std::optional<std::string> special_text(const json& settings, const std::string& name) {
  const json& entry = json_member(settings, name + "_token");
  return entry.is_object() ? json_text(entry, "content") : json_text(settings, name + "_token");
}

SpecialIds special_ids(const Sources& sources, const Tokens& tokens,
                       const nlohmann::ordered_json& config) {
  SpecialIds ids;
  const auto add = [&](const char* name, std::string_view text) {
    for (const json& token : json_member(sources.tokenizer, "added_tokens")) {
      if (json_text(token, "content") == text && json_count(token, "id")) {
        ids.emplace(name, *json_count(token, "id"));
        break;
      }
    }
  };
  for (const auto& [name, key] : kSpecialKeys) {
    if (const auto text = special_text(sources.settings, name)) {
      add(name, *text);
    }
    const auto given = config.find(std::string(name) + "_token_id");
    if (given != config.end() && given->is_number_unsigned() &&
        given->get<std::uint64_t>() < tokens.texts.size()) {
      ids.emplace(name, given->get<std::uint32_t>());
    }
  }
  const auto type = config.find("model_type");
  if (type != config.end() && *type == "glm4_moe") {
    for (const auto& [name, text] : kGlmTokens) {
      add(name, text);
    }
  }
  return ids;
}

/// True where llama.cpp begins texts with BOS unless the file disables it.
bool begins_by_itself(const GgufVocabulary& made) {
  return std::ranges::any_of(made.fields, [](const storage::GgufField& field) {
    const auto* name = std::get_if<std::string>(&field.value);
    return field.key == "tokenizer.ggml.pre" && name != nullptr &&
           (*name == "llama-bpe" || *name == "tekken");
  });
}

/// Whether a text begins and ends with its special tokens: by the post-processor where it says so,
/// or by tokenizer_config.json.
void add_frame(const Sources& sources, GgufVocabulary& made) {
  std::map<std::string, bool> frame;
  const auto add = [&](const json& section) -> Status {
    const auto type = json_text(section, "type");
    if (type == "ByteLevel") {
      frame.emplace("bos", false);
      frame.emplace("eos", false);
    }
    const json& single = json_member(section, "single");
    if (type == "TemplateProcessing" && single.is_array() && single.size() > 1) {
      const auto id_of = [](const json& place) {
        return json_text(json_member(place, "SpecialToken"), "id");
      };
      if (const auto first = id_of(single.front())) {
        frame["bos"] = first == special_text(sources.settings, "bos");
      }
      if (const auto last = id_of(single.back())) {
        frame["eos"] = last == special_text(sources.settings, "eos");
      }
    }
    return {};
  };
  (void)for_each_in_sequence(json_member(sources.tokenizer, "post_processor"), "processors", add);
  for (const auto& [name, key] : {std::pair{"bos", "tokenizer.ggml.add_bos_token"},
                                  std::pair{"eos", "tokenizer.ggml.add_eos_token"}}) {
    const json& given = json_member(sources.settings, fmt::format("add_{}_token", name));
    if (given.is_boolean()) {
      frame.emplace(name, given.get<bool>());
    }
    if (name == std::string_view("bos") && begins_by_itself(made)) {
      frame.emplace(name, false);
    }
    if (const auto found = frame.find(name); found != frame.end()) {
      made.fields.push_back({key, found->second});
    }
  }
}

Status add_templates(const Sources& sources, GgufVocabulary& made) {
  std::map<std::string, std::string> templates;
  const json& given = json_member(sources.settings, "chat_template");
  std::error_code ignored;
  const fs::path file = sources.directory / "chat_template.jinja";
  if (given.is_string()) {
    templates["default"] = given.get<std::string>();
  } else if (given.is_array()) {
    for (const json& one : given) {
      templates[json_text(one, "name").value_or("default")] =
          json_text(one, "template").value_or("");
    }
  } else if (fs::exists(file, ignored)) {
    templates["default"] = TRAIN_TRY(storage::read_file(file, kFileLimitBytes));
  } else {
    const json older = TRAIN_TRY(read_json(sources.directory / "chat_template.json"));
    if (const auto text = json_text(older, "chat_template")) {
      templates["default"] = *text;
    }
  }
  Texts names;
  for (auto& [name, text] : templates) {
    if (name == "default") {
      made.fields.push_back({kGgufTemplateKey, std::move(text)});
    } else {
      names.push_back(name);
      made.fields.push_back({fmt::format("{}.{}", kGgufTemplateKey, name), std::move(text)});
    }
  }
  if (!names.empty()) {
    made.fields.push_back({"tokenizer.chat_templates", std::move(names)});
  }
  return {};
}

/// True if text is normalised in no other way than by NFC.
bool is_at_most_nfc(const json& normalizer) {
  return for_each_in_sequence(normalizer, "normalizers",
                              [](const json& section) -> Status {
                                return json_text(section, "type") == "NFC"
                                           ? Status()
                                           : user_error("another normal form");
                              })
      .ok();
}

/// Notes of what llama.cpp does not do before merges.
void note_differences(const json& tokenizer, GgufVocabulary& made) {
  if (!json_member(tokenizer, "normalizer").is_null()) {
    made.notes.emplace_back(
        "llama.cpp does not normalise text for this tokenizer: letters written with combining "
        "marks may be other tokens there");
  }
  for (const json& token : json_member(tokenizer, "added_tokens")) {
    if (json_flag(token, "lstrip", false) || json_flag(token, "rstrip", false) ||
        json_flag(token, "single_word", false)) {
      made.notes.push_back(fmt::format(
          "llama.cpp finds added tokens wherever their text is, spaces beside them kept, others "
          "than \"{}\" of this tokenizer",
          json_text(token, "content").value_or("")));
      return;
    }
  }
}

/// Texts of tokens that llama.cpp takes for control tokens whatever the file says: ends of texts,
/// and places of code around a gap.
constexpr std::string_view kTakenForControl =
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> <|end_of_text|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <end_of_utterance> "
    "<eos> <turn|> <|tool_response> <\uFF5Cend\u2581of\u2581sentence\uFF5C> [e~[ <|fim_prefix|> "
    "<fim-prefix> <fim_prefix> <\uFF5Cfim\u2581begin\uFF5C> <PRE> \u2581<PRE> <|code_prefix|> "
    "<|prefix|> <|fim_suffix|> <fim-suffix> <fim_suffix> <\uFF5Cfim\u2581hole\uFF5C> <SUF> "
    "\u2581<SUF> <|code_suffix|> <|suffix|> <|fim_middle|> <fim-middle> <fim_middle> "
    "<\uFF5Cfim\u2581end\uFF5C> <MID> \u2581<MID> <|code_middle|> <|middle|> <|fim_pad|> <fim-pad> "
    "<fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>";

/// Notes of tokens that are ordinary here and end or steer texts there.
void note_taken_for_control(const Tokens& tokens, GgufVocabulary& made) {
  std::set<std::string_view> taken;
  for (const auto one : std::views::split(kTakenForControl, ' ')) {
    taken.emplace(one.begin(), one.end());
  }
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    const bool ordinary = tokens.types[id] == kNormal || tokens.types[id] == kUserDefined;
    if (ordinary && taken.contains(tokens.texts[id])) {
      made.notes.push_back(fmt::format(
          "llama.cpp takes the ordinary token \"{}\" of this tokenizer for a control token: a text "
          "that says it is cut there, and may end there",
          tokens.texts[id]));
    }
  }
}

/// Tokens and merges of a byte-level tokenizer.json.
Result<GgufVocabulary> byte_level(const Sources& sources, Tokens& tokens) {
  const json& model = json_member(sources.tokenizer, "model");
  const bool whole_words = json_flag(model, "ignore_merges", false);
  const char* splitting = splitting_name(sources.tokenizer, whole_words);
  if (splitting == nullptr && splitting_name(sources.tokenizer, !whole_words) != nullptr &&
      merges_make_all(sources.tokenizer)) {
    splitting = splitting_name(sources.tokenizer, !whole_words);
  }
  if (json_text(model, "type").value_or("BPE") != "BPE" ||
      json_flag(model, "byte_fallback", false) || splitting == nullptr) {
    return user_error(fmt::format(
        "{}: llama.cpp has no tokenizer that splits text as this one; give --no-tokenizer to "
        "leave it out",
        (sources.directory / "tokenizer.json").string()));
  }
  if (!is_at_most_nfc(json_member(sources.tokenizer, "normalizer"))) {
    return user_error(
        fmt::format("{}: llama.cpp normalises no text before merges, as this normalizer does; give "
                    "--no-tokenizer to leave the tokenizer out",
                    (sources.directory / "tokenizer.json").string()));
  }
  const json& vocab = json_member(model, "vocab");
  for (auto entry = vocab.begin(); vocab.is_object() && entry != vocab.end(); ++entry) {
    const auto id = entry->is_number_unsigned() ? entry->get<std::size_t>() : tokens.texts.size();
    if (id >= tokens.texts.size()) {
      return too_many(sources, id, tokens.texts.size());
    }
    tokens.set(id, entry.key(), kNormal);
  }
  TRAIN_RETURN_IF_ERROR(add_added(sources, tokens));
  Texts merges;
  for (const json& merge : json_member(model, "merges")) {
    merges.push_back(merge_text(merge));
  }
  GgufVocabulary made;
  made.fields = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", splitting}};
  made.fields.push_back({"tokenizer.ggml.tokens", tokens.texts});
  made.fields.push_back({"tokenizer.ggml.token_type", tokens.types});
  made.fields.push_back({"tokenizer.ggml.merges", std::move(merges)});
  note_differences(sources.tokenizer, made);
  note_taken_for_control(tokens, made);
  if (splitting == std::string_view("gpt-4o")) {
    made.notes.emplace_back(
        "llama.cpp tells small letters from capitals in ASCII alone, and takes combining marks for "
        "no letters: words of other alphabets may be other tokens there");
  }
  return made;
}

/// A way of SentencePiece that llama.cpp does not have; nullptr: there is none.
const char* unknown_rule(const SentencePieceModel& model) {
  return model.kind != SentencePieceModel::Kind::bpe ? "reads pieces that merges make (BPE) alone"
         : model.rules.whitespace_as_suffix ? "puts the mark of a space before words, not behind"
         : !model.rules.escape_whitespaces  ? "marks every space in a text"
                                            : nullptr;
}

/// Notes of texts that are other tokens in llama.cpp.
void note_differences(const SentencePieceModel& model, GgufVocabulary& made) {
  if (model.rules.remove_extra_whitespaces) {
    made.fields.push_back({"tokenizer.ggml.remove_extra_whitespaces", true});
    made.notes.emplace_back(
        "llama.cpp keeps runs of spaces, which this tokenizer joins: such texts are other tokens "
        "there");
  }
  if (!model.rules.character_map.empty()) {
    made.notes.emplace_back(
        "llama.cpp does not normalise text for this tokenizer: characters that its map replaces "
        "are other tokens there");
  }
  const bool own = std::any_of(model.pieces.begin(), model.pieces.end(), [](const auto& piece) {
    return piece.type == SentencePieceModel::PieceType::user_defined;
  });
  if (own && model.rules.add_dummy_prefix) {
    made.notes.emplace_back(
        "llama.cpp puts a space behind each token that no merge makes, before text: such texts are "
        "other tokens there");
  }
  const bool spaces = std::any_of(model.pieces.begin(), model.pieces.end(), [](const auto& piece) {
    return piece.type == SentencePieceModel::PieceType::user_defined &&
           piece.text.find(kSpaceMark) != std::string_view::npos;
  });
  if (spaces) {
    made.notes.emplace_back(
        "llama.cpp tells spaces from the mark \"\u2581\" (U+2581) that stands for them: texts with "
        "it "
        "are other tokens there");
  }
  if (!model.byte_fallback) {
    made.notes.emplace_back(
        "llama.cpp fails at characters that have no token, as this tokenizer has none for bytes");
  }
}

/// Pieces and scores of a tokenizer.model.
Result<GgufVocabulary> sentencepiece(const Sources& sources, const std::string& bytes,
                                     Tokens& tokens) {
  const fs::path path = sources.directory / "tokenizer.model";
  const auto model = TRAIN_TRY(parse_sentencepiece_model(bytes));
  if (const char* rule = unknown_rule(model)) {
    return user_error(
        fmt::format("{}: llama.cpp {}, unlike this tokenizer; give --no-tokenizer to leave it out",
                    path.string(), rule));
  }
  if (model.pieces.size() > tokens.texts.size()) {
    return too_many(sources, model.pieces.size() - 1, tokens.texts.size());
  }
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    // Files have spaces in pieces that no merge makes.
    const bool own = piece.type == SentencePieceModel::PieceType::user_defined;
    tokens.set(id, own ? replaced(piece.text, kSpaceMark, " ") : std::string(piece.text),
               static_cast<std::int32_t>(piece.type), piece.score);
  }
  const json added = TRAIN_TRY(read_json(sources.directory / "added_tokens.json"));
  for (auto entry = added.begin(); added.is_object() && entry != added.end(); ++entry) {
    if (entry->is_number_unsigned() && entry->get<std::size_t>() < tokens.texts.size()) {
      tokens.set(entry->get<std::size_t>(), entry.key(), kUserDefined, Tokens::kAddedScore);
    }
  }
  TRAIN_RETURN_IF_ERROR(add_added(sources, tokens));
  GgufVocabulary made;
  made.fields = {{"tokenizer.ggml.model", "llama"}, {"tokenizer.ggml.pre", "default"}};
  made.fields.push_back({"tokenizer.ggml.tokens", tokens.texts});
  made.fields.push_back({"tokenizer.ggml.scores", tokens.scores});
  made.fields.push_back({"tokenizer.ggml.token_type", tokens.types});
  made.fields.push_back({"tokenizer.ggml.add_space_prefix", model.rules.add_dummy_prefix});
  note_differences(model, made);
  note_taken_for_control(tokens, made);
  return made;
}

/// The model's own part says how many tokens there are.
GgufVocabulary no_vocabulary() {
  GgufVocabulary made;
  made.fields = {{"tokenizer.ggml.model", "no_vocab"}};
  made.notes.emplace_back("the file has no tokenizer: llama.cpp takes and gives ids of tokens");
  return made;
}

}  // namespace

Result<GgufVocabulary> gguf_vocabulary(const fs::path& directory, std::int64_t vocab_size,
                                       const nlohmann::ordered_json& config) {
  if (directory.empty() || !holds_tokenizer(directory)) {
    return no_vocabulary();
  }
  Sources sources{.directory = directory};
  sources.tokenizer = TRAIN_TRY(read_json(directory / "tokenizer.json"));
  sources.settings = TRAIN_TRY(read_json(directory / "tokenizer_config.json"));
  Tokens tokens(vocab_size);
  std::error_code ignored;
  GgufVocabulary made;
  if (fs::exists(directory / "tokenizer.model", ignored)) {
    const std::string bytes =
        TRAIN_TRY(storage::read_file(directory / "tokenizer.model", kFileLimitBytes));
    made = TRAIN_TRY(sentencepiece(sources, bytes, tokens));
  } else if (!sources.tokenizer.is_null()) {
    made = TRAIN_TRY(byte_level(sources, tokens));
  } else {
    return user_error(fmt::format(
        "{}: a tokenizer is written from tokenizer.json or tokenizer.model, which are not there; "
        "give --no-tokenizer to leave it out",
        directory.string()));
  }
  for (const auto& [name, id] : special_ids(sources, tokens, config)) {
    const auto key = std::find_if(kSpecialKeys.begin(), kSpecialKeys.end(),
                                  [&name](const auto& one) { return name == one.first; });
    made.fields.push_back({key->second, id});
  }
  add_frame(sources, made);
  TRAIN_RETURN_IF_ERROR(add_templates(sources, made));
  return made;
}

}  // namespace train::data
