// Mistral's tekken.json: ranks, a splitting pattern, and special tokens before the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/formats/base64.hpp"
#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "data/tokenizer/formats/tokenizer_json_events.hpp"
#include "data/tokenizer/text/byte_level.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

using nlohmann::json;

/// Special tokens by id, for files without a list.
constexpr std::array<std::string_view, 20> kUsualSpecials = {"<unk>",
                                                             "<s>",
                                                             "</s>",
                                                             "[INST]",
                                                             "[/INST]",
                                                             "[AVAILABLE_TOOLS]",
                                                             "[/AVAILABLE_TOOLS]",
                                                             "[TOOL_RESULTS]",
                                                             "[/TOOL_RESULTS]",
                                                             "[TOOL_CALLS]",
                                                             "[IMG]",
                                                             "<pad>",
                                                             "[IMG_BREAK]",
                                                             "[IMG_END]",
                                                             "[PREFIX]",
                                                             "[MIDDLE]",
                                                             "[SUFFIX]",
                                                             "[SYSTEM_PROMPT]",
                                                             "[/SYSTEM_PROMPT]",
                                                             "[TOOL_CONTENT]"};

/// Entry of "vocab" or "special_tokens".
struct Entry {
  std::uint64_t rank = kTokenIdLimit;
  std::string text;  ///< In base64, or the name.
};

struct TekkenDocument {
  std::string pattern;
  std::uint64_t vocab_size = 0;
  std::uint64_t specials_count = 0;
  std::vector<Entry> vocabulary;
  std::vector<Entry> specials;
};

/// Receives the events of nlohmann's SAX parser, and keeps what the document needs.
class TekkenEvents : public nlohmann::json_sax<json> {
 public:
  explicit TekkenEvents(TekkenDocument& document) : document_(document) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }

  bool number_unsigned(number_unsigned_t value) override {
    if (in_entry() && key_ == "rank") {
      entry_.rank = std::min<std::uint64_t>(value, kTokenIdLimit);
    } else if (in_config() && key_ == "default_vocab_size") {
      document_.vocab_size = value;
    } else if (in_config() && key_ == "default_num_special_tokens") {
      document_.specials_count = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (in_entry() && key_ == (section_ == "vocab" ? "token_bytes" : "token_str")) {
      entry_.text = std::move(value);
    } else if (in_config() && key_ == "pattern") {
      document_.pattern = std::move(value);
    }
    return true;
  }

  bool key(string_t& value) override {
    (depth_ == 1 ? section_ : key_) = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (in_entry()) {
      entry_ = {};
    }
    return true;
  }
  bool end_object() override {
    if (in_entry()) {
      (section_ == "vocab" ? document_.vocabulary : document_.specials)
          .push_back(std::move(entry_));
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    defect_position_ = position;
    return false;
  }

  [[nodiscard]] std::size_t defect_position() const { return defect_position_; }

 private:
  [[nodiscard]] bool in_config() const { return depth_ == 2 && section_ == "config"; }
  [[nodiscard]] bool in_entry() const {
    return depth_ == 3 && (section_ == "vocab" || section_ == "special_tokens");
  }

  TekkenDocument& document_;
  Entry entry_;
  std::string section_;  ///< Current top-level member.
  std::string key_;
  std::size_t depth_ = 0;
  std::size_t defect_position_ = 0;
};

/// Takes as many tokens of the list as fit after the special ones.
Result<Vocabulary> vocabulary_of(const TekkenDocument& document) {
  const std::uint64_t wanted = document.vocab_size - document.specials_count;
  Vocabulary vocabulary;
  for (std::uint64_t rank = 0; rank < wanted; ++rank) {
    const Entry& entry = document.vocabulary[rank];
    const auto bytes = from_base64(entry.text);
    if (entry.rank != rank || !bytes || bytes->empty() ||
        (rank < 256 && *bytes != std::string(1, static_cast<char>(rank)))) {
      return user_error(fmt::format(
          "entry {} of \"vocab\" needs that rank and its token_bytes in base64{}; it has {}", rank,
          rank < 256 ? ", the byte of that number" : "", storage::shown(entry.text)));
    }
    const auto id = static_cast<std::uint32_t>(rank + document.specials_count);
    if (!vocabulary.add(to_byte_level(*bytes), id)) {
      return user_error(fmt::format("entry {} of \"vocab\", {}, appears twice", rank,
                                    storage::shown(entry.text)));
    }
  }
  return vocabulary;
}

/// Special tokens by id; unnamed ones are named after their ids.
Result<std::vector<AddedToken>> special_tokens_of(const TekkenDocument& document) {
  std::vector<std::string> names(document.specials_count);
  if (document.specials.empty()) {
    std::copy_n(kUsualSpecials.begin(), std::min(kUsualSpecials.size(), names.size()),
                names.begin());
  }
  for (const Entry& entry : document.specials) {
    if (entry.rank >= names.size() || !names[entry.rank].empty() || entry.text.empty()) {
      return user_error(fmt::format(
          "special token {} needs a rank of its own below {}, config.default_num_special_tokens",
          storage::shown(entry.text), names.size()));
    }
    names[entry.rank] = entry.text;
  }
  std::vector<AddedToken> tokens;
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    const bool named = !names[id].empty();
    tokens.push_back({.content = named ? names[id] : fmt::format("<SPECIAL_{}>", id),
                      .id = id,
                      .searched = false,
                      .special = true});
  }
  return tokens;
}

Result<PreTokenizer> splitter_of(const std::string& pattern) {
  std::vector<PreTokenizerStage> stages;
  if (const auto known = known_pattern(pattern)) {
    stages.emplace_back(SplitStage{.pattern = KnownSplitter(*known)});
  } else {
    auto regex = Regex::compile(pattern);
    if (!regex) {
      return user_error("config.pattern: " + regex.error().message);
    }
    stages.emplace_back(SplitStage{.pattern = std::move(*regex)});
  }
  stages.emplace_back(ByteLevelStage{.add_prefix_space = false, .splitter = std::nullopt});
  return PreTokenizer(std::move(stages));
}

Status check_sizes(const TekkenDocument& document) {
  if (document.pattern.empty() || document.specials_count >= document.vocab_size ||
      document.vocab_size > kTokenIdLimit || document.vocab_size - document.specials_count < 256 ||
      document.vocab_size - document.specials_count > document.vocabulary.size()) {
    return user_error(fmt::format(
        "\"config\" needs a pattern, and a default_vocab_size of 256 bytes or more behind the "
        "default_num_special_tokens and at most the {} entries of \"vocab\"; they are {} and {}",
        document.vocabulary.size(), document.vocab_size, document.specials_count));
  }
  return {};
}

}  // namespace

Result<TokenizerParts> read_tekken_file(std::string_view text) {
  TekkenDocument document;
  TekkenEvents events(document);
  if (!json::sax_parse(text.begin(), text.end(), &events)) {
    return user_error(fmt::format("not JSON at byte {}: cut short or overwritten; fetch it again",
                                  events.defect_position()));
  }
  TRAIN_RETURN_IF_ERROR(check_sizes(document));
  auto vocabulary = TRAIN_TRY(vocabulary_of(document));
  auto pre_tokenizer = TRAIN_TRY(splitter_of(document.pattern));
  auto tokens = TRAIN_TRY(special_tokens_of(document));
  std::vector<AddedToken> searched = tokens;
  for (AddedToken& token : searched) {
    token.searched = true;
  }
  auto added = TRAIN_TRY(AddedTokens::make(std::move(tokens), Normalizer()));
  auto controls = TRAIN_TRY(AddedTokens::make(std::move(searched), Normalizer()));
  SpecialFrame frame;
  if (const AddedToken* begin = added.token("<s>")) {
    frame.before.push_back(begin->id);
  }
  const AddedToken* end = added.token("</s>");
  return TokenizerParts{.added = std::move(added),
                        .normalizer = {},
                        .pre_tokenizer = std::move(pre_tokenizer),
                        .model = Bpe::from_ranks(std::move(vocabulary)),
                        .frame = std::move(frame),
                        .rendered = RenderedRules{.controls = std::move(controls)},
                        .decoder = TokenDecoder({ByteLevelDecode{}}),
                        .end_of_text = end == nullptr ? std::nullopt : std::optional(end->id),
                        .notes = {}};
}

}  // namespace train::data
