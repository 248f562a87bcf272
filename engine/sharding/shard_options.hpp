#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

// The text of [parallel] as numbers, for ShardPlan::make. Every error is the user's, names the key
// and says what mends it.

/// The strategy called `text`; `key` is named in the error.
[[nodiscard]] Result<Strategy> strategy_of(const std::string& text, const std::string& key);

/// The strategy of every unit: parallel.strategy_by_unit, else parallel.strategy.
[[nodiscard]] Result<std::vector<Strategy>> strategies_of(const ShardPlan::Options& options);

/// The units of each group, groups by their first unit: parallel.wrapping. Tied embeddings put the
/// first and the last unit into one group. Error when a group would have two strategies.
[[nodiscard]] Result<std::vector<std::vector<std::size_t>>> wrap_units(
    const ShardPlan::Options& options, const std::vector<Strategy>& strategies);

/// parallel.reshard: 1 "never", 0 "after_forward", else its number.
[[nodiscard]] Result<std::int64_t> reshard_of(const std::string& text);

/// parallel.sync as rounds between syncs (0: one sync); `automatic` is what "auto" means.
[[nodiscard]] Result<std::int64_t> rounds_per_sync_of(const std::string& text,
                                                      std::int64_t automatic);

/// batch.radix against the runs of lanes that ranks sum: a run that begins inside a node of level 1
/// with several lanes of it would be kept, and sent, lane by lane.
[[nodiscard]] Status check_runs(const ShardPlan::Options& options, const LaneSchedule& lanes);

/// Ranks, lanes, parallel.group and the element types of [precision].
[[nodiscard]] Status check_ranks(const ShardPlan::Options& options,
                                 const std::vector<Strategy>& strategies);

}  // namespace train::engine
