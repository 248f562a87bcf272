#pragma once

#include <cstdint>
#include <vector>

#include "engine/command.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

/// One unit's turn in one pass of one round, in the order of computation.
struct Visit {
  std::int64_t round = 0;
  bool backward = false;
  std::size_t unit = 0;
};

/// A time in which a group uses a shared buffer: visits [first, last] of a command.
struct Reservation {
  std::size_t group = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  std::int32_t buffer = -1;  ///< Which of the shared buffers.
  std::int32_t before = -1;  ///< Reservation that must have ended (its kernels enqueued); -1: none.
  bool backward = false;     ///< It begins in a backward pass (decides the prefetch distance).
  bool from_smaller_group = false;  ///< reshard = N: gathered from reshard_peers() alone.
  bool keeps_rows = false;          ///< reshard = N: at its end GatheredWeights copies rows.
  std::int32_t keeper =
      -1;  ///< from_smaller_group: the reservation that keeps the rows; it must end first.
};

/// The visits of a pass, its gathers and its gradient buffers: which buffer, in which order.
/// Pure; the same on every rank, also on those that have no lane in a round.
class BufferSchedule {
 public:
  BufferSchedule(const ShardPlan& plan, const PassPlan& pass);

  [[nodiscard]] const std::vector<Visit>& visits() const { return visits_; }
  [[nodiscard]] std::size_t visit(std::int64_t round, bool backward, std::size_t unit) const;

  /// Gathers, in the order in which they are started. Neighbouring visits of one group share one;
  /// so do others, where a buffer is left over in between that neither the layers nor the prefetch
  /// need: the weights stay there. With a buffer for every group each is gathered once.
  [[nodiscard]] const std::vector<Reservation>& gathers() const { return gathers_; }
  /// Index in gathers() of the reservation that covers the visit; -1: the unit's weights are
  /// resident, or the visit computes nothing (ShardPlan::below_trained).
  [[nodiscard]] std::int32_t gather_of(std::size_t visit) const { return gather_of_[visit]; }
  /// Leaves: a group's backward visits of one round, and the forward visit of a unit that
  /// writes a gradient there already (UnitTraits).
  [[nodiscard]] const std::vector<Reservation>& gradient_buffers() const {
    return gradient_buffers_;
  }
  /// Index in gradient_buffers(); -1: no gradient, or it goes straight into the group's own
  /// (uses_shared_gradient()).
  [[nodiscard]] std::int32_t gradient_buffer_of(std::size_t visit) const {
    return gradient_buffer_of_[visit];
  }

 private:
  std::vector<Visit> visits_;
  std::vector<Reservation> gathers_, gradient_buffers_;
  std::vector<std::int32_t> gather_of_, gradient_buffer_of_;
  std::size_t units_ = 0;
  bool backward_ = false;
};

/// Shared buffers of lane gradients.
[[nodiscard]] std::int64_t gradient_buffer_count(const ShardPlan& plan);

}  // namespace train::engine
