#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/exec/totals/step_result.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Counts of NaN and Inf that a search takes behind each unit's pass, forward and backward, by
/// lane: exchanged blocks of all ranks, one after the other.
///
/// Ownership: owns its memory, borrows the plan.
class NonfiniteCounts {
 public:
  explicit NonfiniteCounts(const RankPlan& rank);

  /// Device memory where a search counts the non-finite values of a unit's pass.
  [[nodiscard]] std::int64_t* count(const LaneWork& work, std::size_t unit, bool backward) const;
  /// Enqueues that the host sees that count, which is complete.
  void counted(kernels::Stream& stream, const std::int64_t* count) const;
  /// The block of `rank`: memory of the host.
  [[nodiscard]] std::span<std::byte> block(std::int64_t rank) const;
  [[nodiscard]] NonfiniteOrigin origin() const;  ///< In stream order.
  [[nodiscard]] std::size_t size_bytes() const { return counts_.size_bytes(); }

 private:
  [[nodiscard]] std::size_t index_of(std::int64_t lane, std::size_t unit, bool backward) const;

  const RankPlan* rank_;
  HostDeviceBuffer counts_;
  std::vector<std::int64_t> lane_at_;  // By lane.
};

}  // namespace train::engine
