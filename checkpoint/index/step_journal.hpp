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

/// A step of training, as the step journal keeps it: bitwise.
struct StepRecord {
  std::int64_t step = 0;  ///< Number of the step that was done, from 1.
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  std::int64_t tokens = 0;                          ///< Read up to here.
  std::vector<std::uint64_t> unit_grad_norms = {};  ///< Bits of doubles, by unit; may be empty.
  /// After the step, of every tensor that a checkpoint holds, by name (engine::tensor_digests()).
  /// Empty in steps that are not digested.
  std::vector<std::uint64_t> tensor_digests = {};
};

/// All but step and digests.
[[nodiscard]] std::string step_text(const StepRecord& record);
/// Empty: not the text of one.
[[nodiscard]] std::optional<StepRecord> parse_step(std::int64_t step, std::string_view text);

[[nodiscard]] std::string digests_text(const std::vector<std::uint64_t>& digests);
[[nodiscard]] std::optional<std::vector<std::uint64_t>> parse_digests(std::string_view text);

/// Adds a step's records to `batch`.
void put_step(storage::WriteBatch& batch, const StepRecord& record);

/// What a store has of the steps.
struct StepJournal {
  std::map<std::int64_t, StepRecord> steps;
  std::vector<std::int64_t> unreadable;  ///< Steps with a record that is no text of one; ascending.
};

/// Reads it all. Errors: the store's. Blocks.
Result<StepJournal> read_step_journal(storage::KvStore& store);
/// Those of steps `first` to `last` that can be read, without digests; reads no others. Errors: the
/// store's. Blocks.
Result<std::vector<StepRecord>> read_steps(storage::KvStore& store, std::int64_t first,
                                           std::int64_t last);
/// Whether it has a record of any step, readable or not. Errors: the store's. Blocks.
Result<bool> has_steps(storage::KvStore& store);

}  // namespace train::checkpoint
