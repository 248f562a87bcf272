#include "data/tokenizer/formats/tokenizer_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/tokenizer_json_events.hpp"
#include "data/tokenizer/formats/tokenizer_sections.hpp"

namespace train::data {
namespace {

using nlohmann::json;

std::vector<std::string> left_out(const json& document) {
  std::vector<std::string> notes;
  for (const std::string_view key : {"truncation", "padding"}) {
    if (!json_member(document, key).is_null()) {
      notes.push_back(fmt::format("the file's {} is left out", key));
    }
  }
  return notes;
}

Result<WordModel> read_bpe(const json& section, TokenizerDocument& document, bool byte_level) {
  auto options = TRAIN_TRY(read_bpe_options(section));
  if (!document.scores.empty()) {
    return user_error("model.vocab is a list, as of Unigram, but the model's type is BPE");
  }
  options.byte_level = byte_level;
  auto bpe =
      Bpe::from_merges(std::move(document.vocabulary), document.merges.texts(), std::move(options));
  if (!bpe) {
    return user_error("model: " + bpe.error().message);
  }
  return WordModel(std::move(*bpe));
}

Result<WordModel> read_unigram(const json& section, TokenizerDocument& document) {
  constexpr double unknown_penalty = 10.0;
  auto options = TRAIN_TRY(read_unigram_options(section, document.scores.size()));
  if (document.vocabulary.id_limit() != document.scores.size()) {
    return user_error("model.vocab appears twice");
  }
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<Unigram::Piece> pieces;
  for (const double score : document.scores) {
    pieces.push_back({.score = score});
    lowest = std::min(lowest, score);
  }
  options.unknown_score = lowest - unknown_penalty;
  return WordModel(Unigram(std::move(document.vocabulary), std::move(pieces), options));
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view text) {
  auto document = TRAIN_TRY(read_tokenizer_document(text));
  const json& rest = *document.rest;
  const json& model = json_member(rest, "model");
  if (!model.is_object()) {
    return user_error("there is no model in it");
  }
  const auto unigram = TRAIN_TRY(is_unigram(model));
  auto normalizer = TRAIN_TRY(read_normalizer(json_member(rest, "normalizer")));
  auto pre_tokenizer = TRAIN_TRY(read_pre_tokenizer(json_member(rest, "pre_tokenizer")));
  auto decoder = TRAIN_TRY(read_decoder(json_member(rest, "decoder")));
  auto frame = TRAIN_TRY(read_post_processor(json_member(rest, "post_processor")));
  auto tokens = TRAIN_TRY(read_added_tokens(json_member(rest, "added_tokens")));
  if (unigram && pre_tokenizer.byte_level()) {
    return user_error("model: Unigram behind a pre_tokenizer of bytes is not supported");
  }
  auto model_parts = TRAIN_TRY(unigram ? read_unigram(model, document)
                                       : read_bpe(model, document, pre_tokenizer.byte_level()));
  auto added = TRAIN_TRY(
      AddedTokens::make(numbered(std::move(tokens), model_parts.vocabulary()), normalizer));
  return TokenizerParts{.added = std::move(added),
                        .normalizer = std::move(normalizer),
                        .pre_tokenizer = std::move(pre_tokenizer),
                        .model = std::move(model_parts),
                        .frame = std::move(frame),
                        .decoder = std::move(decoder),
                        .end_of_text = std::nullopt,
                        .notes = left_out(rest)};
}

}  // namespace train::data
