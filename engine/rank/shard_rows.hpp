#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/optimizer/optimizer.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "engine/state_view.hpp"

// Which rows a rank's shard of the state has, without any state: a pure function of the options.
namespace train::engine {

/// A view of rows of a parameter, or of a state tensor of its shape, at `data`.
[[nodiscard]] StateView row_view(std::string name, const Parameter& parameter,
                                 std::int64_t first_row, std::int64_t rows, float* data);

/// Appends the rows of a group's part, weights and optimizer state, in the order of a shard; `data`
/// of the views is null.
void append_rows(const ShardGroup& group, const Part& part, const Optimizer& optimizer,
                 std::vector<StateView>& views);

/// What RankState::shard_views() is on `rank` of `plan`, in its order; `data` is null.
[[nodiscard]] std::vector<StateView> shard_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                                std::int64_t rank);

/// Bytes of a rank's shard.
[[nodiscard]] std::uint64_t shard_bytes(const ShardPlan& plan, const Optimizer& optimizer,
                                        std::int64_t rank);

}  // namespace train::engine
