#pragma once

#include <cstddef>

#include "engine/model/elements.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// What a pass compares the model with, of all rows of this rank's lanes: what the head reads in
/// the frozen copy, or outputs of its layers (ComparedOutputs), whose place their distances'
/// gradients take. Kept by the copy's forward pass (LossUse::compared) for the pass that comes
/// next (Pass::compared).
///
/// Threading: in the compute stream's order. Ownership: owns the memory, borrows the plan.
class FrozenInputs {
 public:
  /// Without memory where no pass reads the frozen copy.
  explicit FrozenInputs(const RankPlan& rank);

  /// [rows of a lane, embedding_dim], of the activations' type; `index`: of ComparedOutputs.
  /// REQUIRES: a pass reads it.
  [[nodiscard]] Elements of(const LaneWork& work, std::size_t index = 0) const;
  [[nodiscard]] std::size_t lane_bytes() const { return lane_bytes_; }

  /// Of all that an engine of these options allocates here.
  [[nodiscard]] static std::size_t planned_bytes(const RankLayout& layout, const ShardPlan& plan,
                                                 const RankOptions& options);
  [[nodiscard]] std::size_t allocated_bytes() const { return rows_.size_bytes(); }

 private:
  const RankPlan* rank_;
  std::size_t lane_bytes_, of_lane_;  // One of those that there are of a lane, and how many.
  kernels::Buffer rows_;
};

}  // namespace train::engine
