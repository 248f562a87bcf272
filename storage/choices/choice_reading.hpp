#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/choices/choice_question.hpp"
#include "storage/choices/choice_results.hpp"
#include "storage/tokenizer/text_encoder.hpp"
#include "storage/tokenizer/tokenizer.hpp"

namespace train::storage {

/// A choice as a model reads it: tokens of its context and of its continuation, one after the
/// other.
struct ChoiceDocument {
  std::size_t first_token = 0;     ///< Index into QuestionTokens::tokens.
  std::uint32_t context = 0;       ///< Tokens; at least one.
  std::uint32_t continuation = 0;  ///< Tokens; at least one.

  /// Tokens that are read: all but the last one.
  [[nodiscard]] std::int64_t inputs() const {
    return static_cast<std::int64_t>(context) + continuation - 1;
  }
};

/// Questions as tokens.
struct QuestionTokens {
  std::vector<ScoredQuestion> questions;
  std::vector<ChoiceDocument> documents;  ///< Of each question's choices, in order.
  std::vector<std::int32_t> tokens;
};

struct ChoiceOptions {
  std::int64_t row_length = 0;     ///< Tokens that a model sees at most.
  std::int64_t rows_per_lane = 1;  ///< batch.micro_batch.
  std::int64_t vocab_size = 0;     ///< Of the model.
};

/// Reads the questions of files, one file after the other. Threading: one owner.
class ChoiceReading {
 public:
  /// `tokenizer`: none: a token a byte.
  ChoiceReading(std::optional<Tokenizer> tokenizer, const ChoiceOptions& options);

  /// Adds all of a file. Blocks. Errors: those of ChoiceSet::open.
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

}  // namespace train::storage
