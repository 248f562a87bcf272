#pragma once

#include <cstddef>
#include <vector>

#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// objective.reference = "live", and passes that are compared with a frozen copy (Compared): the
/// weights of the model as the run began, which its layers read in passes of the frozen copy
/// (PassPlan::frozen): of each group what GroupState has for them, whole where it is
/// resident, else the shard that gathers send, of the same type. No masters and no optimizer state.
/// Frozen groups have no second copy. With adapters no group has one: the model without its
/// adapters is the initial model.
///
/// Threading: immutable. Ownership: owns the copies; borrows plan and state.
class ReferenceWeights {
 public:
  /// Copies the weights, which are those of the beginning. Blocking.
  ReferenceWeights(const RankPlan& rank, const RankState& state);

  /// True if the pass reads the group's weights here, and not in the state.
  [[nodiscard]] bool serve(const PassPlan& pass, std::size_t group) const;
  /// Flat. REQUIRES: serve(), and the group is resident.
  [[nodiscard]] ConstElements whole(std::size_t group) const;
  /// Shard that the pass's gathers send: the copy's or the state's. REQUIRES: the group is not
  /// resident.
  [[nodiscard]] const std::byte* shard(const PassPlan& pass, std::size_t group) const;

  /// Bytes of the copy of a group.
  [[nodiscard]] static std::size_t planned_bytes(const RankLayout& layout, std::size_t group);
  void add_allocated(MemoryPlan& memory) const;

 private:
  const RankPlan* rank_;
  const RankState* state_;
  std::vector<kernels::Buffer> copies_;  // By group; empty: the state's are those of the beginning.
};

/// True if an engine of these options computes the reference in every step.
[[nodiscard]] bool has_live_reference(const RankOptions& options);
/// True if such an engine reads the run's initial weights, which no checkpoint holds.
[[nodiscard]] bool needs_first_weights(const RankOptions& options);
/// True if an engine with a live reference needs a copy of the group's weights.
[[nodiscard]] bool copies_reference(const RankOptions& options, const ShardGroup& group);

}  // namespace train::engine
