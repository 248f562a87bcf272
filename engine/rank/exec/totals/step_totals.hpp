#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/rank/exec/totals/lane_sums.hpp"
#include "engine/rank/exec/totals/nonfinite_counts.hpp"
#include "engine/rank/exec/totals/norm_tree.hpp"
#include "engine/rank/exec/totals/pass_totals.hpp"
#include "engine/rank/exec/totals/step_result.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct UpdateGuard;

}  // namespace train::kernels

namespace train::engine {

/// Totals of a step, an evaluation or a search: sums by lane, norms by node, counts of NaN and Inf.
/// Each rank writes its own block; once the blocks of all ranks are here, the same trees over them
/// give the same bits on every rank.
///
/// Threading: calls that take a stream only enqueue; "in stream order": call it from work on that
/// stream or after synchronising it. Ownership: owns its memory, borrows the plan.
class StepTotals {
 public:
  explicit StepTotals(const RankPlan& rank);
  StepTotals(const StepTotals&) = delete;
  StepTotals& operator=(const StepTotals&) = delete;

  [[nodiscard]] const LaneSums& lanes() const { return lanes_; }
  [[nodiscard]] const NonfiniteCounts& nonfinite_counts() const { return nonfinite_; }
  /// REQUIRES: a step has several passes.
  [[nodiscard]] const PassTotals& passes() const { return *passes_; }
  [[nodiscard]] PassTotals& passes() { return *passes_; }

  /// Enqueues the norms of this rank's rows of a group. `gradient`: packed as GroupLayout::reduce.
  void add_norms(kernels::Stream& stream, std::size_t group, const float* gradient) const;
  void add_pass_norms(kernels::Stream& stream, std::size_t group,
                      const float* gradient) const;  ///< Those of PassTotals::norms().

  /// The block of `rank` in loss_and_norm, eval_sums, block_sums or nonfinite: memory of the host.
  [[nodiscard]] std::span<std::byte> block(CollectiveKind kind, std::int64_t rank) const;

  /// After loss_and_norm of step `step` (from 0): enqueues loss, global norm, clip scale and the
  /// check for NaN and Inf.
  void combine(kernels::Stream& stream, std::int64_t step);
  /// Decision of combine(), where kernels read it.
  [[nodiscard]] const kernels::UpdateGuard* guard() const;

  /// In stream order; of step `step` (from 0), but for StepResult::optimizer_sums.
  [[nodiscard]] StepResult step_result(std::int64_t step) const;
  [[nodiscard]] bool nonfinite() const;  ///< In stream order.

  void add_allocated(MemoryPlan& memory) const;

 private:
  /// Values that the host derives from a step's sums, and the update guard a kernel makes of them.
  struct Scalars;

  void add_norms_of(const NormTree& tree, kernels::Stream& stream, std::size_t group,
                    const float* gradient) const;
  /// Writes a step's sums, norms and metrics, on the host.
  void finish(std::int64_t step, Scalars& results);
  [[nodiscard]] const Scalars& results() const;

  const RankPlan* rank_;
  // Exchanged blocks of all ranks, one after the other: norms, loss sums, agreements of passes. The
  // host's copy is whole, the device's holds this rank's block alone.
  HostDeviceBuffer step_sums_;
  LaneSums lanes_;
  NonfiniteCounts nonfinite_;
  kernels::Buffer row_sums_;  // Scratch of add_norms().
  NormTree norms_;
  std::optional<PassTotals> passes_;
  std::vector<double> unit_squares_;
  std::vector<double> metrics_;  // Metrics of the step.
  HostDeviceBuffer scalars_;
};

}  // namespace train::engine
