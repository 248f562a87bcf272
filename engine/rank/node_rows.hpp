#pragma once

#include <cstdint>
#include <vector>

#include "engine/optimizer/optimizer.hpp"
#include "engine/rank/rank_engine.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "engine/state_view.hpp"

// What the ranks of one node keep, shared out among them so that each row is there once.
namespace train::engine {

/// The ranks of one node.
struct RankSpan {
  std::int64_t first = 0;
  std::int64_t end = 1;  ///< One past the last.
};

/// The rank's share of what its node's ranks keep: each row of their state parts is in the share of
/// exactly one of them. With all ranks on one node that is reduce_part(). REQUIRES: `rank` is one
/// of `node`.
[[nodiscard]] Part node_part(const ShardPlan& plan, std::size_t group, std::int64_t rank,
                             const RankSpan& node);

/// The share's rows of weights and optimizer state, in the order of a shard; `data` is null.
[[nodiscard]] std::vector<StateView> node_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                               std::int64_t rank, const RankSpan& node);

/// Rows of all that the rank keeps between steps, each once: weights and optimizer state of its
/// state part, and weights that lie whole here while their masters do not (optimizer, gradient).
/// The rows of RankState::views(); `data` is null.
[[nodiscard]] std::vector<StateView> kept_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                               std::int64_t rank);

/// Bytes of the rows of node_rows().
[[nodiscard]] std::uint64_t node_bytes(const ShardPlan& plan, const Optimizer& optimizer,
                                       std::int64_t rank, const RankSpan& node);

/// Those rows as the engine's rank keeps them; borrows from the engine.
[[nodiscard]] std::vector<StateView> node_views(const RankEngine& rank, const RankSpan& node);

}  // namespace train::engine
