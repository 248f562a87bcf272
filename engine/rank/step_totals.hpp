#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/collective_schedule.hpp"
#include "engine/rank/gradient_norm.hpp"
#include "engine/rank/host_device_buffer.hpp"
#include "engine/rank/lane_work.hpp"
#include "engine/rank/memory_plan.hpp"
#include "engine/rank/rank_plan.hpp"
#include "engine/rank/step_result.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// What a step, an evaluation or a probe comes to: loss sums by lane, norms by node, counts of NaN
/// and Inf. Each rank writes its own block; once the blocks of all ranks are here, the same trees
/// over them give the same bits on every rank.
///
/// Threading: calls that take a stream only enqueue; "in stream order": call it from work on that
/// stream or after synchronising it. Ownership: owns its memory, borrows the plan.
class StepTotals {
 public:
  explicit StepTotals(const RankPlan& rank);

  /// Where the loss of a lane of this rank is summed up; the device's.
  [[nodiscard]] kernels::LossSums* lane_sums(const LaneWork& work) const;
  /// Enqueues that the host sees the lane's sums, which are complete.
  void lane_summed(kernels::Stream& stream, const LaneWork& work) const;
  /// Where a probe counts values of a unit's pass that are not finite; the device's.
  [[nodiscard]] std::int64_t* nonfinite_count(const LaneWork& work, std::size_t unit,
                                              bool backward) const;
  /// Enqueues that the host sees that count, which is complete.
  void nonfinite_counted(kernels::Stream& stream, const std::int64_t* count) const;
  /// Enqueues the norms of this rank's rows of a group. `gradient`: packed as GroupLayout::reduce.
  void add_norms(kernels::Stream& stream, std::size_t group, const float* gradient) const;

  /// The block of `rank` in loss_and_norm, eval_sums or nonfinite: memory of the host.
  [[nodiscard]] std::span<std::byte> block(CollectiveKind kind, std::int64_t rank) const;

  /// After loss_and_norm: enqueues loss, global norm, clip scale and the check for NaN and Inf.
  void combine(kernels::Stream& stream);
  /// What combine() decides, where kernels read it.
  [[nodiscard]] const kernels::UpdateGuard* guard() const;

  /// In stream order; of step `step` (from 0), but for StepResult::optimizer_sums.
  [[nodiscard]] StepResult step_result(std::int64_t step) const;
  [[nodiscard]] EvaluationResult evaluation_result() const;  ///< In stream order.
  [[nodiscard]] NonfiniteOrigin nonfinite_origin() const;    ///< In stream order.
  [[nodiscard]] bool nonfinite() const;                      ///< In stream order.

  void add_allocated(MemoryPlan& memory) const;

 private:
  /// What the host works out of a step's sums, and the gate that a kernel makes of that.
  struct Scalars {
    double squared_norm = 0.0;
    double cross_entropy = 0.0;
    double z_squared = 0.0;
    double reserved = 0.0;
    kernels::UpdateGuard guard;
  };

  void place_lanes();
  [[nodiscard]] const kernels::LossSums* host_lane_sums(std::int64_t lane) const;
  /// Index of the count in nonfinite_.
  [[nodiscard]] std::size_t nonfinite_at(std::int64_t lane, std::size_t unit, bool backward) const;
  [[nodiscard]] const Scalars& results() const { return *scalars_.host<Scalars>(); }

  const RankPlan* rank_;
  // Exchanged blocks of all ranks, one after the other: norms and loss sums; evaluation loss sums;
  // counts of NaN and Inf. The host's copies are whole, the device's hold this rank's block alone.
  HostDeviceBuffer step_sums_, eval_sums_, nonfinite_;
  std::vector<std::int64_t> step_sums_at_, eval_sums_at_, lane_at_;  // By lane.
  kernels::Buffer row_sums_;                                         // Scratch of add_norms().
  NormTree norms_;
  std::vector<double> unit_squares_;
  HostDeviceBuffer scalars_;
};

}  // namespace train::engine
