#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/group_state.hpp"
#include "engine/state_view.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// State of a rank between steps: masters, optimizer state and compute weights of all groups, as
/// checkpoints and snapshots see them.
///
/// Threading: calls that take a stream only enqueue; "in stream order": call it from work on that
/// stream or after synchronising it, and it blocks. Ownership: owns the memory, borrows the plan.
class RankState {
 public:
  /// Weights from the seed, optimizer state of zeros. Blocking.
  explicit RankState(const RankPlan& rank);

  [[nodiscard]] const GroupState& group(std::size_t index) const { return groups_[index]; }
  /// GroupLayout::made: enqueues that made_weights() are those of the group, if they are not yet.
  void make_weights(kernels::Stream& stream, std::size_t group);
  [[nodiscard]] ConstElements made_weights() const;
  /// After both updates: enqueues what makes compute weights of masters where they have not (bf16).
  void finalize(kernels::Stream& stream);
  /// After a restore, blocking: compute weights from masters. Weights that this rank lacks the
  /// masters of (optimizer, gradient with bf16) are restored too.
  void finalize_restored();

  /// Blocking: the trained weights become their running average, if one is kept; for evaluation,
  /// not for continued training. REQUIRES: masters are here of all weights that this rank computes
  /// with or sends (none, full, hybrid).
  void take_average();

  /// The rows that this rank's shard of a checkpoint holds: its reduce parts, of weights and
  /// moments. Memory of the device (HostState makes it the host's).
  [[nodiscard]] std::vector<StateView> shard_views() const;
  /// All rows that this rank keeps, and views of no row of the other tensors: what a restore fills.
  /// Call finalize_restored() afterwards. Memory of the device.
  [[nodiscard]] std::vector<StateView> views() const;
  /// In stream order; of the masters in this rank's reduce parts. The sum over ranks modulo 2^64 is
  /// the digest of all weights, the same at any plan.
  [[nodiscard]] std::uint64_t digest() const;
  /// In stream order; engine::tensor_digests() of shard_views().
  [[nodiscard]] std::vector<std::uint64_t> tensor_digests(std::span<const std::string> names) const;

  void add_allocated(MemoryPlan& memory) const;

 private:
  const RankPlan* rank_;
  std::vector<GroupState> groups_;
  kernels::Buffer rounding_;      // bf16 halves on the way from masters to compute weights.
  kernels::Buffer made_weights_;  // Compute weights of `made_group_`.
  std::optional<std::size_t> made_group_;  // Group made last; none: its masters have changed since.
};

}  // namespace train::engine
