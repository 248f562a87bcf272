#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/choices/choice_reading.hpp"
#include "data/choices/choice_results.hpp"
#include "data/tokenizer/tokenizer.hpp"

namespace train::data {

/// Columns of a lane's rows, all of one length; like RowColumns, without weights.
struct ChoiceColumns {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;    ///< -1 except for tokens of a continuation.
  std::span<std::int32_t> positions;  ///< From 0 in each document, and in the padding of a row.
};

/// Questions as lanes: one document per choice, in the order of files, lines and choices, packed
/// into rows in that order. A pure function of the files, the tokenizer and the options: never of
/// ranks.
///
/// A document is the context and the continuation without its last token; targets are the
/// continuation's tokens. Spaces at the context's end belong to the continuation. The
/// continuation's tokens are those of (context + continuation) beyond the number of the context's
/// own tokens; a document too long for a row loses tokens at its beginning. Threading: immutable.
class ChoiceSet {
 public:
  /// Documents [first, first + count).
  struct Documents {
    std::size_t first = 0;
    std::size_t count = 0;
  };

  /// `files`: JSON lines, plain, .gz, .zst, or .parquet, in the layouts of parse_choice_question().
  /// `tokenizer`: nullopt: one token per byte. Blocks. Errors (user): a file that is missing or has
  /// no question; file:line of the first malformed question of each kind in a file, of a choice
  /// longer than a row or without a token of its own, of a token outside the model's vocabulary.
  [[nodiscard]] static Result<ChoiceSet> open(const std::vector<std::string>& files,
                                              const std::optional<Tokenizer>& tokenizer,
                                              const ChoiceOptions& options);

  [[nodiscard]] std::int64_t lanes() const;
  [[nodiscard]] std::size_t documents() const { return read_.documents.size(); }
  /// Documents of lanes [first, end), in order.
  [[nodiscard]] Documents documents_of(std::int64_t first, std::int64_t end) const;
  /// Writes the lane's columns. REQUIRES: rows_per_lane * row_length elements in each.
  void read(std::int64_t lane, const ChoiceColumns& columns) const;

  /// Names of the files in reports: file names, or the paths as given if names collide.
  [[nodiscard]] const std::vector<std::string>& sources() const { return sources_; }
  [[nodiscard]] const std::vector<ScoredQuestion>& questions() const { return read_.questions; }
  /// `log_likelihoods`: of all documents.
  [[nodiscard]] std::vector<ChoiceScore> scores(std::span<const double> log_likelihoods) const {
    return score_choices(sources_, read_.questions, log_likelihoods);
  }

 private:
  explicit ChoiceSet(const ChoiceOptions& options) : options_(options) {}
  void pack();

  ChoiceOptions options_;
  std::vector<std::string> sources_;
  QuestionTokens read_;
  std::vector<std::size_t> rows_;  ///< First document of each row, then the end.
};

}  // namespace train::data
