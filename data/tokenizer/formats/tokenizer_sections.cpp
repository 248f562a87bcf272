#include "data/tokenizer/formats/tokenizer_sections.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/tokenizer/formats/base64.hpp"
#include "data/tokenizer/formats/json_members.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using nlohmann::json;

std::string type_of(const json& section) { return json_text(section, "type").value_or(""); }

Error unsupported(std::string_view section, std::string_view type, std::string_view supported) {
  return user_error(fmt::format("{}: type {} is not supported; what is: {}", section,
                                storage::shown(type), supported));
}

/// Pattern in the format: {"Regex": ...} or {"String": ...}.
struct PatternText {
  std::string text;
  bool literal = false;
};

Result<PatternText> read_pattern(std::string_view section, const json& owner) {
  const json& pattern = json_member(owner, "pattern");
  if (auto text = json_text(pattern, "Regex"); text && !text->empty()) {
    return PatternText{std::move(*text), false};
  }
  if (auto text = json_text(pattern, "String"); text && !text->empty()) {
    return PatternText{std::move(*text), true};
  }
  return user_error(fmt::format("{}: {} needs a pattern, a Regex or a String that is not empty",
                                section, type_of(owner)));
}

Result<Regex> compiled(std::string_view section, const PatternText& pattern) {
  auto regex = pattern.literal ? Regex::literal(pattern.text) : Regex::compile(pattern.text);
  if (!regex) {
    return user_error(fmt::format("{}: {}", section, regex.error().message));
  }
  return regex;
}

Result<MatchBehavior> read_behavior(std::string_view type, const json& section) {
  static constexpr std::pair<std::string_view, MatchBehavior> behaviors[] = {
      {"Isolated", MatchBehavior::isolated},
      {"Removed", MatchBehavior::removed},
      {"MergedWithPrevious", MatchBehavior::merged_with_previous},
      {"MergedWithNext", MatchBehavior::merged_with_next},
      {"Contiguous", MatchBehavior::contiguous},
  };
  const std::string wanted = json_text(section, "behavior").value_or("Isolated");
  for (const auto& [name, behavior] : behaviors) {
    if (name == wanted) {
      return behavior;
    }
  }
  return user_error(
      fmt::format("pre_tokenizer: {} has no behavior {}", type, storage::shown(wanted)));
}

/// Single character of a string member.
Result<std::string> read_character(std::string_view section, const json& owner,
                                   std::string_view key) {
  auto text = json_text(owner, key);
  if (!text || text->empty() || storage::code_point_at(text->data()).length != text->size()) {
    return user_error(
        fmt::format("{}: {}.{} needs to be one character", section, type_of(owner), key));
  }
  return std::move(*text);
}

struct MetaspaceOptions {
  std::string replacement;
  PrependScheme prepend = PrependScheme::always;
};

Result<MetaspaceOptions> read_metaspace(std::string_view section, const json& owner) {
  auto replacement = TRAIN_TRY(read_character(section, owner, "replacement"));
  MetaspaceOptions options{.replacement = std::move(replacement)};
  // Older files have a flag instead.
  const bool prefix = json_flag(owner, "add_prefix_space", true);
  const std::string scheme =
      json_text(owner, "prepend_scheme").value_or(prefix ? "always" : "never");
  if (scheme == "first" || scheme == "never") {
    options.prepend = scheme == "first" ? PrependScheme::first : PrependScheme::never;
  } else if (scheme != "always") {
    return user_error(
        fmt::format("{}: Metaspace has no prepend_scheme {}", section, storage::shown(scheme)));
  }
  return options;
}

Result<CharacterMap> read_character_map(const json& section) {
  const auto bytes = from_base64(json_text(section, "precompiled_charsmap").value_or(""));
  if (!bytes || bytes->empty()) {
    return user_error("normalizer: Precompiled needs its precompiled_charsmap, in base64");
  }
  auto map = CharacterMap::parse(*bytes);
  if (!map) {
    return user_error("normalizer: " + map.error().message);
  }
  return map;
}

Status add_normalization(const json& section, std::vector<NormalizationStep>& steps) {
  static constexpr std::pair<std::string_view, UnicodeForm> forms[] = {{"NFC", UnicodeForm::nfc},
                                                                       {"NFD", UnicodeForm::nfd},
                                                                       {"NFKC", UnicodeForm::nfkc},
                                                                       {"NFKD", UnicodeForm::nfkd}};
  const std::string type = type_of(section);
  for (const auto& [name, form] : forms) {
    if (name == type) {
      steps.emplace_back(form);
      return {};
    }
  }
  if (type == "Replace") {
    auto pattern = TRAIN_TRY(read_pattern("normalizer", section));
    auto regex = TRAIN_TRY(compiled("normalizer", pattern));
    steps.emplace_back(ReplaceStep{.pattern = std::move(regex),
                                   .literal = pattern.literal ? pattern.text : std::string(),
                                   .content = json_text(section, "content").value_or("")});
  } else if (type == "Prepend") {
    steps.emplace_back(PrependStep{json_text(section, "prepend").value_or("")});
  } else if (type == "Strip") {
    steps.emplace_back(StripStep{.left = json_flag(section, "strip_left", true),
                                 .right = json_flag(section, "strip_right", true)});
  } else if (type == "Lowercase") {
    steps.emplace_back(LowercaseStep{});
  } else if (type == "Precompiled") {
    auto map = TRAIN_TRY(read_character_map(section));
    steps.emplace_back(CharacterMapStep{std::make_shared<const CharacterMap>(std::move(map))});
  } else {
    return unsupported(
        "normalizer", type,
        "NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase, Precompiled, Sequence");
  }
  return {};
}

Status add_split(const json& section, std::vector<PreTokenizerStage>& stages) {
  auto pattern = TRAIN_TRY(read_pattern("pre_tokenizer", section));
  const auto behavior = TRAIN_TRY(read_behavior("Split", section));
  const bool invert = json_flag(section, "invert", false);
  if (pattern.literal) {
    stages.emplace_back(SplitStage{std::move(pattern.text), behavior, invert});
  } else if (const auto known = known_pattern(pattern.text)) {
    stages.emplace_back(SplitStage{KnownSplitter(*known), behavior, invert});
  } else {
    auto regex = TRAIN_TRY(compiled("pre_tokenizer", pattern));
    stages.emplace_back(SplitStage{std::move(regex), behavior, invert});
  }
  return {};
}

Status add_stage(const json& section, std::vector<PreTokenizerStage>& stages) {
  const std::string type = type_of(section);
  if (!stages.empty() && std::holds_alternative<ByteLevelStage>(stages.back())) {
    return user_error(
        fmt::format("pre_tokenizer: {} after ByteLevel is not supported; put it before", type));
  }
  if (type == "Split") {
    return add_split(section, stages);
  }
  if (type == "ByteLevel") {
    ByteLevelStage stage{.add_prefix_space = json_flag(section, "add_prefix_space", true),
                         .splitter = std::nullopt};
    if (json_flag(section, "use_regex", true)) {
      stage.splitter.emplace(KnownPattern::gpt2);
    }
    stages.emplace_back(stage);
  } else if (type == "Metaspace") {
    auto options = TRAIN_TRY(read_metaspace("pre_tokenizer", section));
    stages.emplace_back(MetaspaceStage{.replacement = std::move(options.replacement),
                                       .prepend = options.prepend,
                                       .split = json_flag(section, "split", true)});
  } else if (type == "Digits") {
    const bool single = json_flag(section, "individual_digits", false);
    stages.emplace_back(
        ClassStage{.kind = ClassStage::Kind::digit,
                   .behavior = single ? MatchBehavior::isolated : MatchBehavior::contiguous});
  } else if (type == "Punctuation") {
    const auto behavior = TRAIN_TRY(read_behavior(type, section));
    stages.emplace_back(ClassStage{.kind = ClassStage::Kind::punctuation, .behavior = behavior});
  } else if (type == "WhitespaceSplit") {
    stages.emplace_back(
        ClassStage{.kind = ClassStage::Kind::space, .behavior = MatchBehavior::removed});
  } else if (type == "Whitespace") {
    stages.emplace_back(WordRunStage{});
  } else {
    return unsupported("pre_tokenizer", type,
                       "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                       "WhitespaceSplit, Sequence");
  }
  return {};
}

Status add_decode_step(const json& section, std::vector<DecodeStep>& steps) {
  const std::string type = type_of(section);
  if (type == "ByteLevel") {
    steps.emplace_back(ByteLevelDecode{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    steps.emplace_back(FuseDecode{});
  } else if (type == "Replace") {
    auto pattern = TRAIN_TRY(read_pattern("decoder", section));
    auto regex = TRAIN_TRY(compiled("decoder", pattern));
    steps.emplace_back(ReplaceDecode{.pattern = std::move(regex),
                                     .literal = pattern.literal ? pattern.text : std::string(),
                                     .content = json_text(section, "content").value_or("")});
  } else if (type == "Strip") {
    auto content = TRAIN_TRY(read_character("decoder", section, "content"));
    steps.emplace_back(StripDecode{.content = storage::code_point_at(content.data()).value,
                                   .start = json_count(section, "start").value_or(0),
                                   .stop = json_count(section, "stop").value_or(0)});
  } else if (type == "Metaspace") {
    auto options = TRAIN_TRY(read_metaspace("decoder", section));
    steps.emplace_back(MetaspaceDecode{.replacement = std::move(options.replacement),
                                       .drop_first = options.prepend != PrependScheme::never});
  } else {
    return unsupported("decoder", type,
                       "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
  }
  return {};
}

Result<std::vector<std::uint32_t>> template_ids(const json& special_tokens,
                                                const std::string& name) {
  std::vector<std::uint32_t> ids;
  const json& list = json_member(json_member(special_tokens, name), "ids");
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0xfffffffeU) {
      ids.clear();
      break;
    }
    ids.push_back(id.get<std::uint32_t>());
  }
  if (ids.empty()) {
    return user_error(
        fmt::format("post_processor: special_tokens says no ids for {}", storage::shown(name)));
  }
  return ids;
}

Result<SpecialFrame> read_template(const json& section) {
  SpecialFrame frame;
  unsigned texts = 0;
  for (const json& item : json_member(section, "single")) {
    if (const auto name = json_text(json_member(item, "SpecialToken"), "id")) {
      const auto ids = TRAIN_TRY(template_ids(json_member(section, "special_tokens"), *name));
      auto& side = texts == 0 ? frame.before : frame.after;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      ++texts;
    }
  }
  if (texts != 1) {
    return user_error("post_processor: TemplateProcessing needs its text once in \"single\"");
  }
  return frame;
}

}  // namespace

Result<Normalizer> read_normalizer(const json& section) {
  std::vector<NormalizationStep> steps;
  TRAIN_RETURN_IF_ERROR(for_each_in_sequence(
      section, "normalizers", [&](const json& part) { return add_normalization(part, steps); }));
  return Normalizer(std::move(steps));
}

Result<PreTokenizer> read_pre_tokenizer(const json& section) {
  std::vector<PreTokenizerStage> stages;
  TRAIN_RETURN_IF_ERROR(for_each_in_sequence(
      section, "pretokenizers", [&](const json& part) { return add_stage(part, stages); }));
  return PreTokenizer(std::move(stages));
}

Result<TokenDecoder> read_decoder(const json& section) {
  std::vector<DecodeStep> steps;
  TRAIN_RETURN_IF_ERROR(for_each_in_sequence(
      section, "decoders", [&](const json& part) { return add_decode_step(part, steps); }));
  return section.is_null() ? TokenDecoder() : TokenDecoder(std::move(steps));
}

Result<SpecialFrame> read_post_processor(const json& section) {
  std::optional<SpecialFrame> frame;
  TRAIN_RETURN_IF_ERROR(
      for_each_in_sequence(section, "processors", [&frame](const json& part) -> Status {
        const std::string type = type_of(part);
        if (type == "ByteLevel") {
          return {};  // For bytes only offsets would be trimmed, which are not needed.
        }
        if (type != "TemplateProcessing") {
          return unsupported("post_processor", type, "TemplateProcessing, ByteLevel, Sequence");
        }
        // The first template's output has several parts, which the next would read as a pair.
        if (frame) {
          return user_error(
              "post_processor: a Sequence of two TemplateProcessing is not supported; put both "
              "into one template");
        }
        auto read = read_template(part);
        if (!read) {
          return read.error();
        }
        frame = std::move(*read);
        return {};
      }));
  return frame.value_or(SpecialFrame{});
}

Result<std::vector<AddedToken>> read_added_tokens(const json& section) {
  std::vector<AddedToken> tokens;
  for (const json& entry : section) {
    auto content = json_text(entry, "content");
    if (!content) {
      return user_error(
          fmt::format("added_tokens: entry {} has no text \"content\"", tokens.size()));
    }
    const bool special = json_flag(entry, "special", false);
    tokens.push_back({.content = std::move(*content),
                      .single_word = json_flag(entry, "single_word", false),
                      .lstrip = json_flag(entry, "lstrip", false),
                      .rstrip = json_flag(entry, "rstrip", false),
                      .normalized = json_flag(entry, "normalized", !special),
                      .special = special});
  }
  return tokens;
}

Result<bool> is_unigram(const json& section) {
  const std::string type = json_text(section, "type").value_or("BPE");
  if (type != "BPE" && type != "Unigram") {
    return unsupported("model", type, "BPE, Unigram");
  }
  return type == "Unigram";
}

Result<UnigramOptions> read_unigram_options(const json& section, std::size_t pieces_count) {
  const auto unknown = json_count(section, "unk_id");
  if (!unknown || *unknown >= pieces_count) {
    return user_error(fmt::format(
        "model: a Unigram model needs unk_id, the piece for unknown text, below {}", pieces_count));
  }
  return UnigramOptions{.sums = UnigramOptions::Sums::doubles,
                        .byte_fallback = json_flag(section, "byte_fallback", false),
                        .unknown = *unknown};
}

Result<BpeOptions> read_bpe_options(const json& section) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_text(section, key).value_or("").empty()) {
      return user_error(fmt::format("model: {} is not supported unless empty", key));
    }
  }
  const json& dropout = json_member(section, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0.0) {
    return user_error("model: dropout is not supported; set it to null");
  }
  BpeOptions options;
  options.ignore_merges = json_flag(section, "ignore_merges", false);
  options.byte_fallback = json_flag(section, "byte_fallback", false);
  options.fuse_unk = json_flag(section, "fuse_unk", false);
  options.unk_token = json_text(section, "unk_token");
  return options;
}

}  // namespace train::data
