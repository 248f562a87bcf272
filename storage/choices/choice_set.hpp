#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/choices/choice_reading.hpp"
#include "storage/choices/choice_results.hpp"
#include "storage/tokenizer/tokenizer.hpp"

namespace train::storage {

/// Columns of the rows of a lane, all of one length: as RowColumns', without weights.
struct ChoiceColumns {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;    ///< -1 but for tokens of a continuation.
  std::span<std::int32_t> positions;  ///< From 0 in each document, and in what pads a row.
};

/// Questions as lanes: a document for every choice, in the order of files, lines and choices, put
/// one after the other into rows as long as they fit. A pure function of the files, the tokenizer
/// and the options: never of ranks.
///
/// A document is the context and the continuation without its last token; targets are the
/// continuation's tokens. Spaces at the context's end are the continuation's. Its tokens are those
/// that the context with it has beyond the context's own number; what is too long for a row loses
/// tokens at its beginning.
/// Threading: immutable.
class ChoiceSet {
 public:
  /// Documents [first, first + count).
  struct Documents {
    std::size_t first = 0;
    std::size_t count = 0;
  };

  /// `files`: JSON lines, plain, .gz, .zst, or .parquet; of the layouts of parse_choice_question().
  /// `tokenizer`: none: a token a byte. Blocks.
  /// Errors (user): a file that is missing or has no question; file:line of a line that is no
  /// question, of a choice that is longer than a row or has no token of its own, of a token that
  /// the model does not know.
  [[nodiscard]] static Result<ChoiceSet> open(const std::vector<std::string>& files,
                                              const std::optional<Tokenizer>& tokenizer,
                                              const ChoiceOptions& options);

  [[nodiscard]] std::int64_t lanes() const;
  [[nodiscard]] std::size_t documents() const { return read_.documents.size(); }
  /// Those of lanes [first, end), in order.
  [[nodiscard]] Documents documents_of(std::int64_t first, std::int64_t end) const;
  /// Writes the lane. REQUIRES: rows_per_lane * row_length elements of each column.
  void read(std::int64_t lane, const ChoiceColumns& columns) const;

  /// The files, as they are called in reports: by their names, or as given where names are equal.
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
  std::vector<std::size_t> rows_;  ///< First document of each row, and the end.
};

}  // namespace train::storage
