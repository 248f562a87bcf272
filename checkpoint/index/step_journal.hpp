#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/kv_store.hpp"

namespace train::checkpoint {

/// Training step in the step journal, bitwise.
struct StepRecord {
  std::int64_t step = 0;  ///< Number of the finished step, from 1.
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  std::int64_t tokens = 0;                          ///< Tokens read so far.
  std::vector<std::uint64_t> unit_grad_norms = {};  ///< Bits of doubles, by unit; may be empty.
  /// Digests after the step of every tensor in a checkpoint, by name (engine::tensor_digests()).
  /// Empty for steps without digests.
  std::vector<std::uint64_t> tensor_digests = {};
};

/// Everything except step and digests.
[[nodiscard]] std::string step_text(const StepRecord& record);
/// nullopt: malformed.
[[nodiscard]] std::optional<StepRecord> parse_step(std::int64_t step, std::string_view text);

[[nodiscard]] std::string digests_text(const std::vector<std::uint64_t>& digests);
[[nodiscard]] std::optional<std::vector<std::uint64_t>> parse_digests(std::string_view text);

/// Adds a step's records to `batch`.
void put_step(storage::WriteBatch& batch, const StepRecord& record);

/// Step records of a store.
struct StepJournal {
  std::map<std::int64_t, StepRecord> steps;
  std::vector<std::int64_t> unreadable;  ///< Steps with a malformed record; ascending.
};

/// Reads all records. Errors: the store's. Blocks.
Result<StepJournal> read_step_journal(storage::KvStore& store);
/// Reads the parsable records of steps `first` to `last`, without digests. Errors: the store's.
/// Blocks.
Result<std::vector<StepRecord>> read_steps(storage::KvStore& store, std::int64_t first,
                                           std::int64_t last);
/// True if there is a record of any step, parsable or not. Errors: the store's. Blocks.
Result<bool> has_steps(storage::KvStore& store);

}  // namespace train::checkpoint
