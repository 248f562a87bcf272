#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/rank/exec/totals/step_result.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/head/loss_sums.hpp"

namespace train::engine {

/// Loss sums and metrics of each lane of a step and of an evaluation, and their means over all
/// lanes of all ranks.
///
/// Threading: calls that take a stream only enqueue; others in stream order. Ownership: owns the
/// sums of evaluations and those that blocks read; borrows the plan and the buffer of a step's
/// sums.
class LaneSums {
 public:
  /// `step_sums`: the exchanged blocks of a step (RankLayout::step_block), of all ranks.
  LaneSums(const RankPlan& rank, const HostDeviceBuffer& step_sums);

  /// Loss sums of a lane of this rank, in device memory.
  [[nodiscard]] kernels::LossSums* sums(const LaneWork& work) const;
  /// Enqueues the copy of the lane's complete sums to the host.
  void summed(kernels::Stream& stream, const LaneWork& work) const;
  /// Device memory of the blocks' sums of a lane. nullptr: the blocks have none, or the lane
  /// belongs neither to a step nor to an evaluation.
  [[nodiscard]] double* block_sums(const LaneWork& work) const;
  /// Enqueue setting the blocks' sums to 0, and the copy of the complete sums to the host.
  void clear_block_sums(kernels::Stream& stream, const LaneWork& work) const;
  void blocks_summed(kernels::Stream& stream, const LaneWork& work) const;
  /// The blocks' sums over all lanes of a step, as Lane::step_sums has them; nullptr: no block
  /// reads them.
  [[nodiscard]] const double* step_sums() const;
  /// Enqueues adding up the received blocks of CollectiveKind::block_sums, which step_sums() then
  /// has until the next call.
  void add_step_sums(kernels::Stream& stream) const;
  /// Host memory for a lane's sums and metrics, written by work on the compute stream: instead of
  /// summed(), if the objective's weighting() computes them on the host.
  struct Outcome {
    kernels::LossSums* sums = nullptr;
    std::span<MetricSum> metrics;
  };
  [[nodiscard]] Outcome outcome(const LaneWork& work) const;
  /// Host memory for the lane's loss by source (SourceSums); empty without sources.
  [[nodiscard]] std::span<MetricSum> source_sums(const LaneWork& work) const;
  /// Device memory for sums of a lane that are never read.
  [[nodiscard]] kernels::LossSums* unread() const { return unread_.as<kernels::LossSums>(); }

  /// The block of `rank` in CollectiveKind::eval_sums: memory of the host.
  [[nodiscard]] std::span<std::byte> eval_block(std::int64_t rank) const;
  /// The block of `rank` in CollectiveKind::block_sums, likewise.
  [[nodiscard]] std::span<std::byte> step_lanes_block(std::int64_t rank) const;
  /// Bytes that it owns of sums.
  [[nodiscard]] std::size_t size_bytes() const {
    return eval_sums_.size_bytes() + step_totals_.size_bytes();
  }

  /// One field over all lanes of a step or of an evaluation.
  [[nodiscard]] double total(bool evaluation, double kernels::LossSums::*field) const;
  /// The means over all lanes of a step or an evaluation: the objective's, then those of sources
  /// and of blocks.
  [[nodiscard]] std::vector<double> metrics(bool evaluation) const;
  /// Appends the means over all lanes of a step that blocks report (block_metrics()).
  void add_block_metrics(std::vector<double>& means) const;
  [[nodiscard]] EvaluationResult evaluation_result() const;

 private:
  void place_lanes();
  [[nodiscard]] std::int64_t lanes(bool evaluation) const;
  [[nodiscard]] const HostDeviceBuffer& buffer_of(const LaneWork& work) const {
    return work.pass.evaluates() ? eval_sums_ : *step_sums_;
  }
  /// Sums and metrics of a lane of an evaluation or of a step; ModelSpec::block_sums() come last.
  [[nodiscard]] Outcome whole_outcome(bool evaluation, std::int64_t lane) const;
  /// Outcome::metrics, added up.
  [[nodiscard]] std::vector<MetricSum> over_lanes(bool evaluation) const;
  void append_block_means(std::span<const MetricSum> sums, std::vector<double>& means) const;

  const RankPlan* rank_;
  const HostDeviceBuffer* step_sums_;
  // Exchanged blocks of all ranks, one after the other. The host's copy is whole, the device's
  // holds this rank's block alone.
  HostDeviceBuffer eval_sums_;
  HostDeviceBuffer step_totals_;                           // [RankLayout::step_sums].
  std::vector<std::int64_t> step_sums_at_, eval_sums_at_;  // By lane.
  kernels::Buffer unread_;
  std::vector<std::size_t> block_metric_of_;  // By place in ModelSpec::block_sums().
  std::size_t block_metric_count_ = 0;
};

}  // namespace train::engine
