#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optimizer/optimizer.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "engine/state_view.hpp"

// Which rows a rank's shard of the state has, without any state: a pure function of the options.
namespace train::engine {

/// A view of rows of a parameter, or of a state tensor of its shape, at `data`.
[[nodiscard]] StateView row_view(std::string name, const Parameter& parameter,
                                 std::int64_t first_row, std::int64_t rows, float* data);

/// Names of the states that are kept of the parameter: none where it is frozen.
[[nodiscard]] std::vector<std::string_view> kept_states(const Optimizer& optimizer,
                                                        const Parameter& parameter);

/// Appends the rows of a group's part, weights and optimizer state, in the order of a shard; `data`
/// of the views is null.
void append_rows(const ShardGroup& group, const Part& part, const Optimizer& optimizer,
                 std::vector<StateView>& views);

/// RankState::shard_views() of `rank` of `plan`, in the same order; `data` is null.
[[nodiscard]] std::vector<StateView> shard_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                                std::int64_t rank);

/// Bytes of a rank's shard.
[[nodiscard]] std::uint64_t shard_bytes(const ShardPlan& plan, const Optimizer& optimizer,
                                        std::int64_t rank);

// Rows that the ranks of one node keep, divided among the ranks so that each row appears once.

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

/// node_rows() of this rank with its data; borrows from `state`.
[[nodiscard]] std::vector<StateView> node_views(const RankPlan& rank, const RankState& state,
                                                const RankSpan& node);

/// Digest of the weights among `state` (is_weight(); other tensors are ignored): the sum modulo
/// 2^64 over all rows of XXH3-64(row's bytes, seeded with the parameter's name and the row's
/// index). A sum does not depend on who holds which rows, so ranks add their parts. Host memory,
/// blocking: call it in stream order.
[[nodiscard]] std::uint64_t weights_digest(std::span<const StateView> state);

/// Names of the tensors in `state`, sorted, each once. Of RankState::views(): all that a
/// checkpoint of the run holds, the same at any plan.
[[nodiscard]] std::vector<std::string> tensor_names(std::span<const StateView> state);

/// Digest of each of `names` (sorted, all of `state` among them), computed as for weights and also
/// for optimizer states: the share of the rows in `state`. Sums over ranks give the whole digest.
[[nodiscard]] std::vector<std::uint64_t> tensor_digests(std::span<const StateView> state,
                                                        std::span<const std::string> names);

/// weights_digest() from the digests of all tensors.
[[nodiscard]] std::uint64_t weights_digest(std::span<const std::uint64_t> digests,
                                           std::span<const std::string> names);

}  // namespace train::engine
