#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/elements.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Enqueues copies between memory and bytes on the wire, each of which is fp32 or bf16; what is
/// bf16 in memory is so on the wire, and what is exact is fp32 on both. Offsets are elements of the
/// wire, counts are values. Borrows kernels and stream.
class Wire {
 public:
  Wire(const kernels::KernelTable& kernels, kernels::Stream& stream, bool bf16)
      : kernels_(&kernels), stream_(&stream), bf16_(bf16) {}

  /// Bytes of an element on the wire.
  [[nodiscard]] std::size_t size() const { return bf16_ ? sizeof(std::uint16_t) : sizeof(float); }
  void put(ConstElements from, std::byte* wire, std::int64_t offset, std::int64_t count,
           bool exact = false) const;
  void take(const std::byte* wire, std::int64_t offset, Elements to, std::int64_t count,
            bool exact = false) const;

 private:
  [[nodiscard]] bool is_converted(kernels::DType memory, bool exact) const;
  void copy(void* to, const void* from, std::int64_t count, bool exact) const;

  const kernels::KernelTable* kernels_;
  kernels::Stream* stream_;
  bool bf16_;
};

/// The shared buffers in which groups' weights lie whole for the time of a reservation, and the
/// rows of them that a rank keeps for the backward pass (reshard = N).
///
/// Threading: one owner; calls only enqueue. The order of the compute stream makes reservations
/// safe: one may begin when the last use of the one before it is enqueued.
class GatheredWeights {
 public:
  explicit GatheredWeights(const RankPlan& rank);

  /// Buffer of a reservation of any command.
  [[nodiscard]] Elements of(const Reservation& reservation) const;
  /// Rows of the group kept for the backward pass, packed as GroupLayout::kept_here.
  [[nodiscard]] std::byte* kept(std::size_t group) const { return kept_[group].data(); }
  /// reshard = N: enqueues the copy of the rows this rank keeps of a gathered group. Call it when a
  /// reservation of a forward pass ends; does nothing for any other.
  void keep_for_backward(kernels::Stream& stream, const PassPlan& pass, std::int32_t gather);

  void add_allocated(MemoryPlan& memory) const;

 private:
  const RankPlan* rank_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<kernels::Buffer> kept_;  // By group.
};

}  // namespace train::engine
