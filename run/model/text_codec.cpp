#include "run/model/text_codec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/prepare/prepare.hpp"
#include "data/rows/row_facts.hpp"
#include "data/tokenizer/formats/file_names.hpp"
#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "run/model/model_files.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

/// Tokenizer of a run; empty if there is none. The run's copy comes from model.from.
fs::path tokenizer_of(const fs::path& run, const configs::RunConfig& config) {
  for (const fs::path& model : {model_directory(run), fs::path(config.model.from)}) {
    if (!model.empty() && data::holds_tokenizer(model)) {
      return model;
    }
  }
  return data::kept_tokenizer(config.data.dir);
}

}  // namespace

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char letter : text) {
    tokens.push_back(static_cast<unsigned char>(letter));
  }
  if (tokens.empty()) {
    tokens.push_back(static_cast<std::int32_t>(data::kBytesEndOfText));
  }
  return tokens;
}

std::string show_byte(std::int32_t token) {
  if (token >= data::kBytesEndOfText || token == '\n') {
    return "\n";
  }
  const bool control = (token < 32 && token != '\t') || token == 127;
  return std::string(1, control ? '?' : static_cast<char>(token));
}

Result<TextCodec> TextCodec::of_run(const fs::path& run, const configs::RunConfig& config,
                                    std::int64_t vocab) {
  const auto facts = data::read_dataset_facts(config.data.dir);
  const std::string name = facts ? facts->tokenizer.value_or("") : std::string();
  const bool fits = vocab >= data::kBytesVocabSize && vocab < 2 * data::kBytesVocabSize;
  TextCodec codec;
  const fs::path path = tokenizer_of(run, config);
  if (name == "bytes" || (path.empty() && name.empty() && fits)) {
    codec.vocab_ = data::kBytesVocabSize;
    return codec;
  }
  if (path.empty()) {
    return user_error(
        fmt::format("{}: trained on tokens of \"{}\", and its tokenizer is neither in {} nor "
                    "beside the data in "
                    "{}; put tokenizer.json into the first",
                    run.string(), name.empty() ? "an unknown tokenizer" : name,
                    model_directory(run).string(), config.data.dir));
  }
  auto codec_of_path = TRAIN_TRY(of_directory(path, vocab));
  if (facts && facts->end_of_text) {
    codec_of_path.ends_.push_back(static_cast<std::int32_t>(*facts->end_of_text));
  }
  // A model trained from scratch has no files of its own that define turn ends.
  if (facts && facts->format) {
    const auto rows = TRAIN_TRY(data::read_row_facts(config.data.dir));
    codec_of_path.ends_.insert(codec_of_path.ends_.end(), rows.turn_ends.begin(),
                               rows.turn_ends.end());
  }
  return codec_of_path;
}

Result<TextCodec> TextCodec::of_directory(const fs::path& directory, std::int64_t vocab) {
  auto tokenizer = TRAIN_TRY(data::Tokenizer::load(directory));
  TextCodec codec;
  codec.tokenizer_ = std::make_shared<const data::Tokenizer>(std::move(tokenizer));
  codec.files_ = directory;
  codec.vocab_ = std::min<std::int64_t>(vocab, codec.tokenizer_->vocab_size());
  const auto ends = TRAIN_TRY(data::configured_ends(directory));
  for (const std::uint32_t id : ends) {
    codec.ends_.push_back(static_cast<std::int32_t>(id));
  }
  if (const auto id = codec.tokenizer_->end_of_text()) {
    codec.ends_.push_back(static_cast<std::int32_t>(*id));
  }
  return codec;
}

Result<std::vector<std::int32_t>> TextCodec::encode(std::string_view text) const {
  if (!tokenizer_) {
    return encode_bytes(text);
  }
  auto ids = TRAIN_TRY(tokenizer_->encode(text, /*add_special_tokens=*/true));
  const auto end = tokenizer_->end_of_text();
  while (ids.size() > 1 && end && ids.back() == *end) {
    ids.pop_back();
  }
  if (ids.empty()) {
    ids.push_back(end.value_or(0));
  }
  return checked(ids);
}

Result<std::vector<std::int32_t>> TextCodec::encode_rendered(std::string_view text) const {
  if (!tokenizer_) {
    return encode_bytes(text);
  }
  const auto ids = TRAIN_TRY(tokenizer_->encode(text, {.rendered = true}));
  return checked(ids);
}

Result<std::vector<std::int32_t>> TextCodec::checked(const std::vector<std::uint32_t>& ids) const {
  std::vector<std::int32_t> tokens(ids.begin(), ids.end());
  for (const std::int32_t token : tokens) {
    if (token >= vocab_) {
      return user_error(
          fmt::format("the prompt has token {}, but the model knows {} tokens", token, vocab_));
    }
  }
  return tokens;
}

bool TextCodec::ends_text(std::int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

TextCodec::Stream::Stream(const TextCodec& codec, std::span<const std::int32_t> prompt) {
  if (codec.tokenizer_) {
    text_.emplace(*codec.tokenizer_, std::vector<std::uint32_t>(prompt.begin(), prompt.end()));
  }
}

std::string TextCodec::Stream::add(std::int32_t token) {
  return text_ ? text_->add(static_cast<std::uint32_t>(token)) : show_byte(token);
}

std::string TextCodec::Stream::finish() { return text_ ? text_->finish() : std::string(); }

}  // namespace train::run
