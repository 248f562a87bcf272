#include "data/tokenizer/formats/gguf_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/formats/sentencepiece/sentencepiece_writer.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

constexpr std::int64_t kControlToken = 3;
constexpr std::int64_t kUserDefinedToken = 4;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

/// Splits into words by matches of a pattern, then into bytes.
Json split_by(const char* pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            byte_level(false)}}};
}

/// True for Llama 3's names. For these llama.cpp takes words of the vocabulary whole, and adds BOS
/// before a text, unless the file disables it.
bool is_llama3(std::string_view name) {
  return name == "llama-bpe" || name == "llama3" || name == "llama-v3";
}

/// Name of the pre-tokenizer. Older files have none, or that of llama.cpp's fallback: gpt2 and
/// gptneox, each published with one vocabulary, then split as GPT-2.
std::string splitting_of(const storage::GgufFile& file) {
  const auto* pre = file.value_of<std::string>("tokenizer.ggml.pre");
  const auto* architecture = file.value_of<std::string>("general.architecture");
  const bool named = pre != nullptr && !pre->empty() && *pre != "default";
  const bool one_vocabulary =
      architecture != nullptr && (*architecture == "gpt2" || *architecture == "gptneox");
  return named ? *pre : one_vocabulary ? "gpt-2" : "";
}

/// Pre-tokenizer by name; null if unknown.
Json pre_tokenizer_of(const std::string& name) {
  if (name == "gpt-2") {
    return byte_level(true);
  }
  if (name == "smollm") {
    return {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}};
  }
  if (is_llama3(name)) {
    return split_by(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  }
  if (name == "qwen2") {
    return split_by(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  }
  return nullptr;
}

/// Tokens that no merge produces: control tokens are special.
Json added_tokens(const Texts& tokens, const std::vector<std::int64_t>& types) {
  Json added = Json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] == kControlToken || types[id] == kUserDefinedToken) {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] == kControlToken}});
    }
  }
  return added;
}

/// Ids by token, in their order; of a token that comes twice the first.
Json vocabulary_of(const Texts& tokens) {
  Json vocab = Json::object();
  // Its own ways of adding a member compare it with all before: minutes for 100,000 tokens.
  Json::object_t::Container& members = vocab.get_ref<Json::object_t&>();
  members.reserve(tokens.size());
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (seen.insert(tokens[id]).second) {
      members.emplace_back(tokens[id], id);
    }
  }
  return vocab;
}

/// Adds BOS before and EOS after each text, if the file or llama.cpp's default requires it.
Json post_processor_of(const storage::GgufFile& file, const Texts& tokens, bool llama3) {
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](const char* flag, const char* id_key, bool otherwise) {
    const auto* said = file.value_of<bool>(flag);
    const auto id = file.count_of(id_key);
    if (!(said == nullptr ? otherwise : *said) || !id || *id >= tokens.size()) {
      return;
    }
    const std::string& text = tokens[*id];
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", llama3);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false);
  if (special.empty()) {
    return nullptr;
  }
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", Json::array()},
          {"special_tokens", std::move(special)}};
}

Json config_of(const storage::GgufFile& file, const Texts& tokens) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, of] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                std::pair("pad_token", "tokenizer.ggml.padding_token_id")}) {
    if (const auto id = file.count_of(of); id && *id < tokens.size()) {
      config[key] = tokens[*id];
    }
  }
  return config;
}

using Files = std::map<std::string, std::string>;

/// Tokens that end a text or a turn. As in llama.cpp, generation also stops at end-of-turn tokens:
/// the file's, or a known token of the vocabulary.
Json ends_of(const storage::GgufFile& file, const Texts& tokens) {
  Json ends = Json::array();
  const auto add = [&](std::uint64_t id) {
    if (id < tokens.size() && std::find(ends.begin(), ends.end(), Json(id)) == ends.end()) {
      ends.push_back(id);
    }
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = file.count_of(key)) {
      add(*id);
    }
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    for (const char* known :
         {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"}) {
      if (tokens[id] == known) {
        add(id);
      }
    }
  }
  return ends;
}

/// Adds the files of any tokenizer: chat templates and end-of-text settings.
void add_settings(const storage::GgufFile& file, Json config, Files& files) {
  const auto templates = gguf_template_sources(file);
  if (templates.size() == 1 && templates.contains("default")) {
    files.emplace("chat_template.jinja", templates.at("default"));
  } else if (!templates.empty()) {
    for (const auto& [name, source] : templates) {
      config["chat_template"].push_back({{"name", name}, {"template", source}});
    }
  }
  const auto dumped = [](const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  files.emplace("tokenizer_config.json", dumped(config));
  const Json ends = ends_of(file, *file.value_of<Texts>("tokenizer.ggml.tokens"));
  if (ends.size() > 1) {
    files.emplace("generation_config.json", dumped(Json{{"eos_token_id", ends}}));
  }
}

using PieceType = SentencePieceModel::PieceType;

/// Type of a piece by its number in the file. An unused piece only matches in rendered text, as
/// control pieces do.
PieceType piece_type(std::int64_t number) {
  constexpr std::int64_t unused = static_cast<std::int64_t>(PieceType::unused);
  const bool known = number >= 1 && number <= static_cast<std::int64_t>(PieceType::byte);
  return number == unused ? PieceType::control
         : known          ? static_cast<PieceType>(number)
                          : PieceType::normal;
}

/// Text of a piece in SentencePiece's form: GGUF files have spaces in user-defined pieces.
std::string piece_text(const std::string& token, PieceType type) {
  std::string text;
  for (const char letter : token) {
    const bool marks = letter == ' ' && type == PieceType::user_defined;
    text += marks ? storage::kSpaceMarker : std::string_view(&letter, 1);
  }
  return text;
}

/// Writes pieces with scores and types as a SentencePiece model.
Result<Files> sentencepiece_files(const storage::GgufFile& file) {
  const auto* tokens = file.value_of<Texts>("tokenizer.ggml.tokens");
  const auto* scores = file.value_of<std::vector<double>>("tokenizer.ggml.scores");
  const auto* types = file.value_of<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
  if (tokens == nullptr || scores == nullptr || types == nullptr ||
      types->size() != tokens->size() || scores->size() != tokens->size()) {
    return user_error(fmt::format(
        "{}: tokenizer.ggml.tokens, scores and token_type are missing or do not fit each other",
        file.file().path().string()));
  }
  SentencePieceModel model;
  model.kind = SentencePieceModel::Kind::bpe;
  Texts texts;
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    texts.push_back(piece_text((*tokens)[id], piece_type((*types)[id])));
  }
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    model.pieces.push_back({.text = texts[id],
                            .score = static_cast<float>((*scores)[id]),
                            .type = piece_type((*types)[id])});
    model.byte_fallback = model.byte_fallback || model.pieces.back().type == PieceType::byte;
  }
  // Some files mark the unknown piece as a control piece.
  const auto unknown = file.count_of("tokenizer.ggml.unknown_token_id");
  const bool marked = std::any_of(model.pieces.begin(), model.pieces.end(), [](const auto& piece) {
    return piece.type == PieceType::unknown;
  });
  if (!marked && unknown && *unknown < model.pieces.size()) {
    model.pieces[*unknown].type = PieceType::unknown;
  }
  const auto flag = [&file](const char* key, bool otherwise) {
    const auto* value = file.value_of<bool>(key);
    return value == nullptr ? otherwise : *value;
  };
  model.rules.add_dummy_prefix = flag("tokenizer.ggml.add_space_prefix", true);
  model.rules.remove_extra_whitespaces = flag("tokenizer.ggml.remove_extra_whitespaces", false);
  const auto named = [&](const char* key, std::string_view otherwise) {
    const auto id = file.count_of(key);
    return id && *id < tokens->size() ? std::string_view((*tokens)[*id]) : otherwise;
  };
  model.begin_text = named("tokenizer.ggml.bos_token_id", model.begin_text);
  model.end_text = named("tokenizer.ggml.eos_token_id", model.end_text);
  Json config = config_of(file, *tokens);
  const auto* architecture = file.value_of<std::string>("general.architecture");
  const bool gemma = architecture != nullptr && architecture->starts_with("gemma");
  config["tokenizer_class"] = gemma ? "GemmaTokenizer" : "LlamaTokenizer";
  config["add_bos_token"] = flag("tokenizer.ggml.add_bos_token", true);
  config["add_eos_token"] = flag("tokenizer.ggml.add_eos_token", false);
  if (!gemma) {
    config["legacy"] = false;
  }
  Files files{{"tokenizer.model", sentencepiece_file(model)}};
  add_settings(file, std::move(config), files);
  return files;
}

/// Writes bytes and merges as a tokenizer.json; empty if the pre-tokenizer is unknown.
Result<Files> byte_level_files(const storage::GgufFile& file) {
  const std::string pre = splitting_of(file);
  const Json splitting = pre_tokenizer_of(pre);
  if (splitting.is_null()) {
    return Files();
  }
  const auto* tokens = file.value_of<Texts>("tokenizer.ggml.tokens");
  const auto* merges = file.value_of<Texts>("tokenizer.ggml.merges");
  const auto* types = file.value_of<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
  if (tokens == nullptr || merges == nullptr || types == nullptr ||
      types->size() != tokens->size()) {
    return user_error(fmt::format(
        "{}: tokenizer.ggml.tokens, merges and token_type are missing or do not fit each other",
        file.file().path().string()));
  }
  const bool llama3 = is_llama3(pre);
  Json vocab = vocabulary_of(*tokens);
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added_tokens(*tokens, *types)},
                          {"normalizer", pre == "qwen2" ? Json{{"type", "NFC"}} : Json(nullptr)},
                          {"pre_tokenizer", splitting},
                          {"post_processor", post_processor_of(file, *tokens, llama3)},
                          {"decoder", byte_level(true)},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", llama3},
                            {"vocab", std::move(vocab)},
                            {"merges", *merges}}}};
  Files files{{"tokenizer.json", tokenizer.dump(-1, ' ', false, Json::error_handler_t::replace)}};
  add_settings(file, config_of(file, *tokens), files);
  return files;
}

}  // namespace

Result<std::map<std::string, std::string>> gguf_tokenizer_files(const storage::GgufFile& file) {
  const auto* model = file.value_of<std::string>("tokenizer.ggml.model");
  if (model != nullptr && *model == "gpt2") {
    return byte_level_files(file);
  }
  return model != nullptr && *model == "llama" ? sentencepiece_files(file) : Files();
}

std::string unknown_gguf_tokenizer(const storage::GgufFile& file) {
  const auto words = [&file](const char* key) {
    const auto* value = file.value_of<std::string>(key);
    return value == nullptr ? fmt::format("{} is missing", key)
                            : fmt::format("{} is {}", key, storage::shown(*value));
  };
  return fmt::format(
      "its tokenizer is left out: {}, {}, whose way of splitting text is not known; put the "
      "model's own tokenizer.json beside the weights",
      words("tokenizer.ggml.model"), words("tokenizer.ggml.pre"));
}

GgufTexts gguf_template_sources(const storage::GgufFile& file) {
  GgufTexts sources;
  for (const auto& [key, value] : file.metadata()) {
    const auto* const source = std::get_if<std::string>(&value);
    if (source == nullptr || !key.starts_with(kGgufTemplateKey)) {
      continue;
    }
    const std::string name = key.substr(std::string_view(kGgufTemplateKey).size());
    if (name.empty()) {
      sources["default"] = *source;
    } else if (name.size() > 1 && name.front() == '.') {
      sources.emplace(name.substr(1), *source);
    }
  }
  return sources;
}

GgufTexts gguf_special_tokens(const storage::GgufFile& file) {
  GgufTexts special;
  const auto* const tokens = file.value_of<std::vector<std::string>>("tokenizer.ggml.tokens");
  for (const auto& [name, key] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad_token", "tokenizer.ggml.padding_token_id")}) {
    if (const auto id = file.count_of(key); tokens != nullptr && id && *id < tokens->size()) {
      special[name] = (*tokens)[*id];
    }
  }
  return special;
}

}  // namespace train::data
