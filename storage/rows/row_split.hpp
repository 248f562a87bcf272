#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/rows/row_facts.hpp"

namespace train::storage {

/// One document of a row.
struct RowDocument {
  std::int32_t first = 0;    ///< Its first token's place in the row.
  std::int32_t length = 0;   ///< Tokens.
  std::int32_t trained = 0;  ///< Targets that are trained.
  std::int32_t source = 0;   ///< Index into the data set's names of sources.
  /// Of a preference set: number of the pair (or of the KTO example), from 0 within the split; -1:
  /// none.
  std::int64_t pair = -1;
  /// 0: chosen (or desirable, or plain); 1: rejected (undesirable); 2: of a KTO example, its prompt
  /// with another one's answer.
  std::int8_t side = 0;

  bool operator==(const RowDocument&) const = default;
};

/// Where read() puts a row: T elements each.
struct RowColumns {
  std::span<std::int32_t> tokens;     ///< 0 in padding.
  std::span<std::int32_t> targets;    ///< -1 where nothing is trained (prompts, padding, a
                                      ///< document's end).
  std::span<std::int32_t> positions;  ///< 0, 1, ... from each document's first token on; padding is
                                      ///< a document of its own.
  std::span<float> weights = {};      ///< Of targets; 1 unless the data says otherwise, 0 where
                                      ///< nothing is trained; may be empty (not wanted).
  bool prompt_targets = false;        ///< Tokens of prompts are targets too, of weight 0.
};

struct RowOptions {
  std::int64_t row_length = 0;  ///< That is expected; 0: whatever the data has.
  std::int64_t vocab_size = 0;  ///< The model's; 0: that of meta.json, else no limit.
};

/// Rows of fixed length T of one split of a prepared data set, packed when they were prepared.
///
/// A document lies in one row, whole, unless it was packed with "wrapped": then what goes on in
/// another row is a document of that row, and the last target before the cut is its first token. A
/// row of a preference set holds whole pairs, the chosen side of each before its rejected one; of
/// KTO's examples whole ones, too, each before its mismatched document.
/// Threading: const calls are thread-safe. A pure function of the files.
class RowSplit {
 public:
  /// Maps the files and checks that they fit together; reads no tokens. `split`: "train" or "val".
  /// Errors (user): directory or file missing, cut short, at odds with meta.json, with each other,
  /// or with the options; each names the file and the fix.
  static Result<RowSplit> open(const std::filesystem::path& directory, const std::string& split,
                               const RowOptions& options = {});

  RowSplit(RowSplit&&) noexcept;
  RowSplit& operator=(RowSplit&&) noexcept;
  ~RowSplit();

  [[nodiscard]] std::uint64_t rows() const;
  [[nodiscard]] std::int64_t row_length() const;
  [[nodiscard]] const RowFacts& facts() const;  ///< Of both splits.

  // Known without reading the row. REQUIRES: row < rows().

  /// The normaliser of a step is a sum of these.
  [[nodiscard]] std::uint64_t trained_tokens(std::uint64_t row) const;
  /// Of trained targets; trained_tokens() in data without weights.
  [[nodiscard]] double weight_sum(std::uint64_t row) const;
  /// Tokens that are not padding.
  [[nodiscard]] std::uint64_t tokens(std::uint64_t row) const;
  /// In the order in which they lie in the row. Padding is none.
  [[nodiscard]] std::vector<RowDocument> documents(std::uint64_t row) const;
  /// For each of documents(row), its number among the documents of the split.
  [[nodiscard]] std::vector<std::uint64_t> document_numbers(std::uint64_t row) const;

  /// Fills `out` with a row. Waits for the disk where a page is not in memory. Errors (user): a
  /// token >= the vocabulary; names file, position, id. REQUIRES: row < rows(); T elements each.
  Status read(std::uint64_t row, RowColumns out) const;

 private:
  struct State;
  explicit RowSplit(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// What tells these rows from others, as token_fingerprint() does of tokens: of sizes, sampled
/// blocks and digests of the files of both splits. Reads at most 8 MiB of each file. Errors: those
/// of InputFile and read_row_facts().
[[nodiscard]] Result<std::string> row_fingerprint(const std::filesystem::path& directory);

}  // namespace train::storage
