#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/rows/row_facts.hpp"

namespace train::data {

/// Document of a row.
struct RowDocument {
  std::int32_t first = 0;    ///< Position of its first token in the row.
  std::int32_t length = 0;   ///< Tokens.
  std::int32_t trained = 0;  ///< Targets that are trained.
  std::int32_t source = 0;   ///< Index into the data set's source names.
  /// Preference set: index of the pair (or of the KTO example), from 0 within the split; -1: none.
  std::int64_t pair = -1;
  /// 0: chosen (or desirable, or plain); 1: rejected (undesirable); 2: KTO's mismatched document,
  /// an example's prompt with another one's answer.
  std::int8_t side = 0;

  bool operator==(const RowDocument&) const = default;
};

/// Destination of read(): T elements each.
struct RowColumns {
  std::span<std::int32_t> tokens;     ///< 0 in padding.
  std::span<std::int32_t> targets;    ///< -1 for untrained targets (prompts, padding, a document's
                                      ///< end).
  std::span<std::int32_t> positions;  ///< 0, 1, ... from each document's first token on; padding is
                                      ///< a document of its own.
  std::span<float> weights = {};      ///< Weights of targets; 1 unless the data has weights, 0 if
                                      ///< untrained; may be empty (not wanted).
  bool prompt_targets = false;        ///< Prompt tokens are targets too, with weight 0.
};

struct RowOptions {
  std::int64_t row_length = 0;  ///< Expected length; 0: any.
  std::int64_t vocab_size = 0;  ///< The model's; 0: that of meta.json, otherwise no limit.
};

/// Rows of fixed length T of one split of a prepared data set, packed during preparation.
///
/// A document lies in one row, whole, unless packed with "wrapped": then its continuation in
/// another row is a document of that row, whose first token is the last target before the cut. A
/// row of a preference set holds whole pairs, each chosen side before its rejected one; a row of
/// KTO examples holds whole ones too, each before its mismatched document. Threading: const calls
/// are thread-safe. A pure function of the files.
class RowSplit {
 public:
  /// Maps the files and checks that they are consistent; reads no tokens. `split`: "train" or
  /// "val". Errors (user): directory or file missing, truncated, inconsistent with meta.json, with
  /// each other, or with the options; each names the file and the fix.
  static Result<RowSplit> open(const std::filesystem::path& directory, const std::string& split,
                               const RowOptions& options = {});

  RowSplit(RowSplit&&) noexcept;
  RowSplit& operator=(RowSplit&&) noexcept;
  ~RowSplit();

  [[nodiscard]] std::uint64_t rows() const;
  [[nodiscard]] std::int64_t row_length() const;
  [[nodiscard]] const RowFacts& facts() const;  ///< Facts shared by both splits.

  // Known without reading the row. REQUIRES: row < rows().

  /// A step's normaliser is a sum of these.
  [[nodiscard]] std::uint64_t trained_tokens(std::uint64_t row) const;
  /// Weight of trained targets; equals trained_tokens() in data without weights.
  [[nodiscard]] double weight_sum(std::uint64_t row) const;
  /// Number of tokens without padding.
  [[nodiscard]] std::uint64_t tokens(std::uint64_t row) const;
  /// Documents in the order of the row, without padding.
  [[nodiscard]] std::vector<RowDocument> documents(std::uint64_t row) const;
  /// Index within the split of each of documents(row).
  [[nodiscard]] std::vector<std::uint64_t> document_numbers(std::uint64_t row) const;

  /// Fills `out` with a row. Blocks on the disk if a page is not in memory. Errors (user): a token
  /// >= the vocabulary; names file, position, id. REQUIRES: row < rows(); T elements each.
  Status read(std::uint64_t row, RowColumns out) const;

 private:
  struct State;
  explicit RowSplit(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Fingerprint of the rows, like token_fingerprint() for tokens: over sizes, sampled blocks and
/// digests of the files of both splits. Reads at most 8 MiB of each file. Errors: those of
/// InputFile and read_row_facts().
[[nodiscard]] Result<std::string> row_fingerprint(const std::filesystem::path& directory);

}  // namespace train::data
