#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// The threads of a block, one after another on the calling thread: each runs until it ends or comes
// to where it has to wait for others.
namespace cuda_emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  constexpr Extent(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};

/// What the running thread sees.
struct Place {
  Index thread, block;
  Extent threads, blocks;
};
[[nodiscard]] const Place& here();

/// Runs body() once for each thread of each block. Shared memory, static and dynamic, keeps what
/// the block before has left: garbage, as on a device. One grid at a time in the process. Throws
/// std::logic_error when threads wait for some that never come.
void run_grid(const Extent& blocks, const Extent& threads, std::size_t shared_bytes,
              const std::function<void()>& body);

void wait_for_block();
void wait_for_warp();

/// `bits` of the thread `lane` of this warp. Every thread of the warp that still runs calls it.
[[nodiscard]] std::uint64_t exchange(std::uint64_t bits, unsigned lane);
/// Bit i: `value` of thread i of this warp, 0 of one that has ended; all that still run call it.
[[nodiscard]] std::uint32_t ballot(bool value);
/// This thread's number in its warp.
[[nodiscard]] unsigned lane_index();
/// Whether `value` holds for any thread of the block that still runs; all of them call it.
[[nodiscard]] bool any_of_block(bool value);

/// Of the running block; filled with NaN before the first grid.
[[nodiscard]] std::byte* dynamic_shared_memory();

}  // namespace cuda_emulation
