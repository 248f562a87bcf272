#pragma once

#include <cstddef>

#include "engine/model/elements.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// Rows of the frozen copy that a pass compares the model with, for all lanes of this rank: inputs
/// of the copy's head, or outputs of its layers (ComparedOutputs), which the gradients of the
/// distances overwrite. The copy's forward pass (LossUse::compared) keeps them for the next pass
/// (Pass::compared).
///
/// Threading: in the compute stream's order. Ownership: owns the memory, borrows the plan.
class FrozenInputs {
 public:
  /// Allocates no memory if no pass reads the frozen copy.
  explicit FrozenInputs(const RankPlan& rank);

  /// [rows of a lane, embedding_dim], of the activations' type; `index`: of ComparedOutputs.
  /// REQUIRES: a pass reads it.
  [[nodiscard]] Elements of(const LaneWork& work, std::size_t index = 0) const;
  [[nodiscard]] std::size_t lane_bytes() const { return lane_bytes_; }

  /// Bytes that this class allocates in an engine of `options`.
  [[nodiscard]] static std::size_t planned_bytes(const RankLayout& layout, const ShardPlan& plan,
                                                 const RankOptions& options);
  [[nodiscard]] std::size_t allocated_bytes() const { return rows_.size_bytes(); }

 private:
  const RankPlan* rank_;
  std::size_t lane_bytes_, of_lane_;  // Bytes of one input, and number of inputs per lane.
  kernels::Buffer rows_;
};

}  // namespace train::engine
