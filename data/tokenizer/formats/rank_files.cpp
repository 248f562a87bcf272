// Vocabularies without a description of splitting: ranks, and vocabulary with merges.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/formats/base64.hpp"
#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "data/tokenizer/formats/tokenizer_json_events.hpp"
#include "data/tokenizer/text/byte_level.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

struct NamedId {
  std::uint32_t id;
  std::string_view name;
};

/// Vocabulary known by its number of ranks.
struct KnownRanks {
  std::size_t ranks;
  KnownPattern pattern;
  bool nfc;
  std::optional<std::uint32_t> begin;  ///< Token put before a text.
  std::span<const NamedId> specials;
};

constexpr NamedId kGpt2Specials[] = {{50256, "<|endoftext|>"}};
constexpr NamedId kCl100kSpecials[] = {{100257, "<|endoftext|>"},
                                       {100258, "<|fim_prefix|>"},
                                       {100259, "<|fim_middle|>"},
                                       {100260, "<|fim_suffix|>"},
                                       {100276, "<|endofprompt|>"}};
constexpr NamedId kO200kSpecials[] = {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}};
constexpr NamedId kQwenSpecials[] = {
    {151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}};
constexpr NamedId kLlama3Specials[] = {{128000, "<|begin_of_text|>"},
                                       {128001, "<|end_of_text|>"},
                                       {128004, "<|finetune_right_pad_id|>"},
                                       {128005, "<|step_id|>"},
                                       {128006, "<|start_header_id|>"},
                                       {128007, "<|end_header_id|>"},
                                       {128008, "<|eom_id|>"},
                                       {128009, "<|eot_id|>"},
                                       {128010, "<|python_tag|>"}};

constexpr KnownRanks kKnownRanks[] = {
    {50256, KnownPattern::gpt2, false, std::nullopt, kGpt2Specials},
    {100256, KnownPattern::cl100k, false, std::nullopt, kCl100kSpecials},
    {128000, KnownPattern::cl100k, false, 128000, kLlama3Specials},
    {151643, KnownPattern::qwen2, true, std::nullopt, kQwenSpecials},
    {199998, KnownPattern::o200k, false, std::nullopt, kO200kSpecials},
};

/// Iterates over non-empty lines until one fails.
template <class Each>
Status for_each_line(std::string_view text, Each&& each) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (!line.empty() && !each(line)) {
      return user_error(fmt::format("line {} is {}", number, storage::shown(line)));
    }
  }
  return {};
}

Result<Vocabulary> read_ranks(std::string_view text) {
  Vocabulary vocabulary;
  const Status read = for_each_line(text, [&](std::string_view line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const auto bytes = from_base64(line.substr(0, space));
    std::uint32_t rank = 0;
    const char* const end = line.data() + line.size();
    const auto number = std::from_chars(std::min(line.data() + space + 1, end), end, rank);
    return bytes && number.ec == std::errc() && number.ptr == end && rank < kTokenIdLimit &&
           vocabulary.add(to_byte_level(*bytes), rank);
  });
  if (!read) {
    return user_error(fmt::format(
        "{}, not a token in base64 and its rank; name a tokenizer.json, a SentencePiece model, a "
        "tekken.json or a file of ranks",
        read.error().message));
  }
  return vocabulary;
}

std::vector<DecodeStep> byte_level_decoding() { return {ByteLevelDecode{}}; }

PreTokenizer bytes_split_by(KnownPattern pattern) {
  std::vector<PreTokenizerStage> stages;
  stages.emplace_back(
      ByteLevelStage{.add_prefix_space = false, .splitter = KnownSplitter(pattern)});
  return PreTokenizer(std::move(stages));
}

/// The space is added before splitting, except with GPT-2's pattern, whose stage adds it.
PreTokenizer spaced_and_split_by(KnownPattern pattern) {
  std::vector<PreTokenizerStage> stages;
  ByteLevelStage bytes{.add_prefix_space = true, .splitter = std::nullopt};
  if (pattern == KnownPattern::gpt2) {
    bytes.splitter.emplace(pattern);
  } else {
    stages.emplace_back(SplitStage{.pattern = KnownSplitter(pattern)});
  }
  stages.emplace_back(bytes);
  return PreTokenizer(std::move(stages));
}

}  // namespace

Result<TokenizerParts> read_rank_file(std::string_view text) {
  auto vocabulary = TRAIN_TRY(read_ranks(text));
  const auto* const known =
      std::find_if(std::begin(kKnownRanks), std::end(kKnownRanks), [&](const KnownRanks& one) {
        return one.ranks == vocabulary.size() && one.ranks == vocabulary.id_limit();
      });
  if (known == std::end(kKnownRanks)) {
    return user_error(fmt::format(
        "a file of {} ranks does not tell how text is split; convert it to a tokenizer.json",
        vocabulary.size()));
  }
  std::vector<AddedToken> tokens;
  for (const NamedId& special : known->specials) {
    tokens.push_back({.content = std::string(special.name), .id = special.id, .special = true});
  }
  Normalizer normalizer(known->nfc ? std::vector<NormalizationStep>{UnicodeForm::nfc}
                                   : std::vector<NormalizationStep>{});
  auto added = TRAIN_TRY(AddedTokens::make(std::move(tokens), normalizer));
  SpecialFrame frame;
  if (known->begin) {
    frame.before.push_back(*known->begin);
  }
  return TokenizerParts{.added = std::move(added),
                        .normalizer = std::move(normalizer),
                        .pre_tokenizer = bytes_split_by(known->pattern),
                        .model = Bpe::from_ranks(std::move(vocabulary)),
                        .frame = std::move(frame),
                        .decoder = TokenDecoder(byte_level_decoding()),
                        .end_of_text = std::nullopt,
                        .notes = {}};
}

Result<TokenizerParts> read_vocabulary_and_merges(std::string_view vocabulary,
                                                  std::string_view merges, KnownPattern pattern,
                                                  bool prefix_space) {
  auto document = read_tokenizer_document(fmt::format(R"({{"model":{{"vocab":{}}}}})", vocabulary));
  if (!document) {
    return user_error("vocab.json: " + document.error().message);
  }
  const Status read = for_each_line(
      merges, [&](std::string_view line) { return add_merge_line(document->merges, line); });
  if (!read) {
    return user_error(fmt::format("merges.txt: {}, not two tokens", read.error().message));
  }
  BpeOptions options;
  options.byte_level = true;
  auto model = TRAIN_TRY(
      Bpe::from_merges(std::move(document->vocabulary), document->merges.texts(), options));
  std::vector<AddedToken> tokens;
  if (model.vocabulary().find("<|endoftext|>")) {
    tokens.push_back({.content = "<|endoftext|>", .special = true});
  }
  Normalizer normalizer(pattern == KnownPattern::qwen2
                            ? std::vector<NormalizationStep>{UnicodeForm::nfc}
                            : std::vector<NormalizationStep>{});
  auto added =
      TRAIN_TRY(AddedTokens::make(numbered(std::move(tokens), model.vocabulary()), normalizer));
  return TokenizerParts{
      .added = std::move(added),
      .normalizer = std::move(normalizer),
      .pre_tokenizer = prefix_space ? spaced_and_split_by(pattern) : bytes_split_by(pattern),
      .model = std::move(model),
      .frame = {},
      .decoder = TokenDecoder(byte_level_decoding()),
      .end_of_text = std::nullopt,
      .notes = {}};
}

}  // namespace train::data
