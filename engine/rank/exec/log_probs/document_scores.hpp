#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Log-probability of each document in scored lanes: the sum over its targets, in double and in the
/// order of its rows. On the CPU its bits do not depend on the lane or on neighbouring documents.
///
/// Threading: calls that take a stream only enqueue. Ownership: owns its memory.
class DocumentScores {
 public:
  explicit DocumentScores(const RankPlan& rank);

  /// Device memory that receives the log-probabilities of a lane's rows from the head.
  [[nodiscard]] kernels::LogProbResults results() const;
  /// Enqueues the sums of the lane, whose rows are written. `targets`, `positions`: host memory of
  /// its rows, valid until then. A lane that does not follow the previous one clears sums().
  void lane_scored(kernels::Stream& stream, const LaneWork& work,
                   std::span<const std::int32_t> targets, std::span<const std::int32_t> positions);

  /// Sums of this rank's lanes, in their order, to be read in stream order. A document begins with
  /// position 0 and has a target.
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }

  void add_allocated(MemoryPlan& memory) const;

 private:
  HostDeviceBuffer log_probs_;   // [lane_tokens]; none without scored lanes.
  std::int64_t last_lane_ = -1;  // Last lane in sums_, in stream order.
  std::vector<double> sums_;
};

}  // namespace train::engine
