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

/// Log-probabilities that scored lanes give to documents: of each the sum over its
/// targets, in double and in the order of its rows. On the CPU a document's has the same bits in
/// every lane, whatever lies beside it.
///
/// Threading: calls that take a stream only enqueue. Ownership: owns its memory.
class DocumentScores {
 public:
  explicit DocumentScores(const RankPlan& rank);

  /// Device memory that receives the log-probabilities of a lane's rows from the head.
  [[nodiscard]] kernels::LogProbResults results() const;
  /// Enqueues the sums of the lane, whose rows are written. `targets`, `positions`: of its rows,
  /// where the host has them until then. A lane that is not after the one before begins anew.
  void lane_scored(kernels::Stream& stream, const LaneWork& work,
                   std::span<const std::int32_t> targets, std::span<const std::int32_t> positions);

  /// In stream order: of this rank's lanes, in their order. A document is what begins with position
  /// 0 and has a target.
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }

  void add_allocated(MemoryPlan& memory) const;

 private:
  HostDeviceBuffer log_probs_;   // [lane_tokens]; none without scored lanes.
  std::int64_t last_lane_ = -1;  // Last lane in sums_, in stream order.
  std::vector<double> sums_;
};

}  // namespace train::engine
