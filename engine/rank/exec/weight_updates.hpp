#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/rank/exec/rank_gradients.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The optimizer's work on this rank: its rows that are trained, by weight-decay group.
///
/// Threading: one owner per weight-decay group, all on one stream; calls that take it only enqueue.
/// Ownership: owns scratch alone; borrows plan, state, gradients and totals.
class WeightUpdates {
 public:
  WeightUpdates(const RankPlan& rank, const RankState& state, const RankGradients& gradients,
                const StepTotals& totals);

  /// After StepTotals::combine(): enqueues one weight-decay group's update of step `step` (from 0).
  /// Waits, on the stream, for `copied`: the snapshot that still reads the weights.
  void update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
              const kernels::Event& copied);
  /// StepResult::optimizer_sums of a finite step. In stream order.
  [[nodiscard]] std::vector<ExactSum> sums(std::int64_t step) const;

  void add_allocated(MemoryPlan& memory) const;

 private:
  void add_slices(const RankState& state, const RankGradients& gradients, std::size_t group);
  /// OptimizerGroup::Update::number_of in step `step`.
  [[nodiscard]] std::function<std::int64_t(std::size_t unit)> numbers_of(std::int64_t step) const;
  [[nodiscard]] bool diagnosed(std::int64_t step) const;  // It makes the optimizer's sums.

  const RankPlan* rank_;
  const StepTotals* totals_;
  OptimizerGroup decay_, no_decay_;
  kernels::Buffer scratch_;
  HostDeviceBuffer row_sums_;                        // Sums of one update's slice; or empty.
  std::array<std::vector<ExactSum>, 2> group_sums_;  // Sums of rows reported here, by group.
};

}  // namespace train::engine
