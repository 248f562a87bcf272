#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/choices/choice_question.hpp"
#include "data/choices/choice_results.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer.hpp"

namespace train::data {

/// One choice as model input: tokens of the context, then of the continuation.
struct ChoiceDocument {
  std::size_t first_token = 0;     ///< Index into QuestionTokens::tokens.
  std::uint32_t context = 0;       ///< Tokens; at least one.
  std::uint32_t continuation = 0;  ///< Tokens; at least one.

  /// Tokens read by the model: all but the last.
  [[nodiscard]] std::int64_t inputs() const {
    return static_cast<std::int64_t>(context) + continuation - 1;
  }
};

/// Tokenized questions.
struct QuestionTokens {
  std::vector<ScoredQuestion> questions;
  std::vector<ChoiceDocument> documents;  ///< Choices of each question, in order.
  std::vector<std::int32_t> tokens;
};

struct ChoiceOptions {
  std::int64_t row_length = 0;     ///< Longest input of the model, in tokens.
  std::int64_t rows_per_lane = 1;  ///< batch.micro_batch.
  std::int64_t vocab_size = 0;     ///< Vocabulary size of the model.
};

/// Reads questions from files, one file after the other. Threading: one owner.
class ChoiceReading {
 public:
  /// `tokenizer`: nullopt: one token per byte.
  ChoiceReading(std::optional<Tokenizer> tokenizer, const ChoiceOptions& options);

  /// Adds all questions of a file. Blocks. Errors: those of ChoiceSet::open.
  Status read(const std::string& file, std::size_t source);
  [[nodiscard]] QuestionTokens take() { return std::move(read_); }

 private:
  using Ids = std::vector<std::uint32_t>;
  [[nodiscard]] Result<Ids> encode(std::string_view text);
  Status add(const ChoiceQuestion& question, std::size_t source, std::uint64_t line);
  Status add_document(const Ids& whole, std::size_t context);

  std::optional<Tokenizer> tokenizer_;
  ChoiceOptions options_;
  std::optional<TextEncoder> encoder_;
  QuestionTokens read_;
};

}  // namespace train::data
