#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/objective/objective.hpp"
#include "engine/objective/pass.hpp"
#include "engine/rank/exec/totals/lane_sums.hpp"
#include "engine/rank/exec/totals/norm_tree.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Outcomes of the passes in a step of several: loss and norms of each, the agreement of their
/// gradients' signs, the factors of rewarded distances.
///
/// Threading: calls that take a stream only enqueue; others in stream order. Ownership: owns the
/// factors; borrows plan, buffer, lanes and norms.
class PassTotals {
 public:
  /// `step_sums`: the exchanged blocks of a step, of all ranks. `norms`: of what the passes join.
  PassTotals(const RankPlan& rank, const HostDeviceBuffer& step_sums, const LaneSums& lanes,
             const NormTree& norms);

  /// Norms of the last pass, before its gradient joins the earlier ones; in the pass before the
  /// last, norms of the rewarded distances (GradientSource::distances).
  [[nodiscard]] const NormTree& norms() const { return norms_of_last_; }
  /// Device memory where this rank counts the elements of a segment in which gradients agree.
  [[nodiscard]] std::int64_t* agreement(std::size_t group, std::size_t segment) const;
  /// Enqueues that the host sees that count, which is complete.
  void agreement_counted(kernels::Stream& stream, const std::int64_t* count) const;

  /// Enqueues that the outcome of a pass that is not the last is kept for finish().
  void combine(kernels::Stream& stream, const PassPlan& pass, std::int64_t step);
  /// The pass behind this one rewards distances (GradientSource::distances).
  [[nodiscard]] bool measures_distances(const PassPlan& pass) const {
    return distance_factors_ && pass.number + 2 == passes_.size();
  }
  /// Factor of a distance's gradient for kernels, in stream order after combine().
  [[nodiscard]] const float* distance_factor(std::size_t group, std::size_t parameter) const;

  /// A step's loss, on the host: each pass's times its coefficient.
  struct Finished {
    double loss = 0.0;
    bool finite = true;  ///< The norms of all passes are.
    std::vector<double> metrics;
  };
  [[nodiscard]] Finished finish(std::int64_t step);
  [[nodiscard]] std::size_t size_bytes() const {
    return distance_factors_ ? distance_factors_->size_bytes() : 0;
  }

 private:
  /// From the distances of all parameters: what the last pass loses, and its factors.
  void weigh_distances(std::int64_t step);
  /// The mean of the pass's row losses, or what else it loses; without its coefficient.
  [[nodiscard]] double loss(const PassPlan& pass, std::int64_t step) const;
  /// Over the segments of all ranks whose layers step `step` trains.
  [[nodiscard]] SignAgreement sign_agreement(std::int64_t step) const;

  const RankPlan* rank_;
  const HostDeviceBuffer* step_sums_;
  const LaneSums* lanes_;
  const NormTree* norms_;
  NormTree norms_of_last_;
  std::vector<PassOutcome> passes_;                   // In their order.
  std::optional<HostDeviceBuffer> distance_factors_;  // By NormTree::index_of().
  double distance_ = 0.0;                             // Sum over what the step trains.
};

}  // namespace train::engine
