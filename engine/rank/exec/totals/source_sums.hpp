#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/lanes/lane_slot.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Loss of a lane by the source of its rows, for runs that mix sources (RankOptions::sources): the
/// host adds up what the head has left of each row, in the rows' order.
///
/// Threading: as LaneHead. Ownership: owns its memory, borrows the plan.
class SourceSums {
 public:
  explicit SourceSums(const RankPlan& rank);

  /// Sources of a slot's sequences, for the host to write (LaneSlot::sources).
  [[nodiscard]] std::span<std::int32_t> sources(std::int32_t slot) const;
  /// Enqueues the sums over the lane's targets: of loss times weight, and of weights. `row_terms`:
  /// HeadLossParams::row_terms after the head's pass; `columns` live until the stream is past them;
  /// `sums`: memory of the host, one of each source.
  void add(kernels::Stream& stream, const double* row_terms, const LaneSlot& columns,
           std::span<MetricSum> sums) const;

  /// Bytes that this class allocates in an engine of `options`; 0: the run mixes no sources.
  [[nodiscard]] static std::size_t planned_bytes(const RankOptions& options);
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  const RankPlan* rank_;
  mutable std::vector<std::int32_t> sources_;  // By slot and sequence.
  HostDeviceBuffer row_terms_;
};

}  // namespace train::engine
