#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/elements.hpp"
#include "engine/rank/memory_plan.hpp"
#include "engine/rank/rank_plan.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The shared buffers in which groups' weights lie whole for the time of a reservation, and the
/// rows of them that a rank keeps for the backward pass (reshard = N).
///
/// Threading: one owner; calls only enqueue. The order of the compute stream makes reservations
/// safe: one may begin when the last use of the one before it is enqueued.
class GatheredWeights {
 public:
  explicit GatheredWeights(const RankPlan& rank);

  /// Of a reservation of any command.
  [[nodiscard]] Elements of(const Reservation& reservation) const;
  /// Rows of the group kept for the backward pass, packed as GroupLayout::kept_here.
  [[nodiscard]] std::byte* kept(std::size_t group) const { return kept_[group].data(); }
  /// reshard = N: enqueues the copy of the rows this rank keeps of a gathered group. Call it when a
  /// reservation of a forward pass ends; does nothing for any other.
  void keep_for_backward(kernels::Stream& stream, CommandKind kind, std::int32_t gather);

  void add_allocated(MemoryPlan& memory) const;

 private:
  const RankPlan* rank_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<kernels::Buffer> kept_;  // By group.
};

}  // namespace train::engine
