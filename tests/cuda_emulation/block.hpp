#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

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

/// The major number of the compute capability: 8, or as CUDA_EMULATION_CAPABILITY says ("9").
[[nodiscard]] int capability();

constexpr int multiprocessors = 3;  ///< A kernel that has a block for each of them has few.

/// Of a block: 163 KiB, or 227 with compute capability 9.0.
[[nodiscard]] int most_shared_bytes();

/// Runs body() once for each thread of each block. Shared memory, static and dynamic, keeps what
/// the block before has left: garbage, as on a device. One grid at a time in the process. Throws
/// std::logic_error when threads wait for some that never come.
void run_grid(const Extent& blocks, const Extent& threads, std::size_t shared_bytes,
              const std::function<void()>& body);

/// Grids that have run in this process.
[[nodiscard]] std::int64_t grids_run();

void wait_for_block();
void wait_for_warp();

/// `bits` of the thread `lane` of this warp. Every thread of the warp that still runs calls it.
[[nodiscard]] std::uint64_t exchange(std::uint64_t bits, unsigned lane);
/// Bit i: `value` of thread i of this warp, 0 of one that has ended; all that still run call it.
[[nodiscard]] std::uint32_t ballot(bool value);
/// Bit i: thread i of this warp shows the same `bits` as this one; all that still run call it.
[[nodiscard]] std::uint32_t lanes_with(std::uint64_t bits);
/// What an instruction of a whole warp shows to the other lanes, in words of 32 bits; lane(i) is
/// good until the next instruction of this thread. Every thread of the warp calls show() with the
/// same `instruction`, or the grid ends with std::logic_error.
class WarpWords {
 public:
  static WarpWords show(int instruction, std::initializer_list<std::uint32_t> words);
  [[nodiscard]] const std::uint32_t* lane(unsigned i) const { return lanes_[i].data(); }

  using Words = std::array<std::uint32_t, 8>;

 private:
  const Words* lanes_ = nullptr;
};

/// Copies to shared memory, at an address in bytes, that this thread has begun: 16 bytes each, or
/// zeros where `from` is null. What lies there becomes garbage at once, and `from` is read when the
/// thread waits for the copy: the earliest and the latest that a device may.
void copy_later(std::uint32_t to, const void* from);
void commit_copies();
void wait_for_copies(unsigned pending);

/// A product of a warpgroup that this thread has begun, on its `count` sums, which are NaN until
/// run() has been called: when the thread waits for it, the latest that a device may. All threads
/// of four warps begin as many, or the grid ends with std::logic_error.
void multiply_later(float* sums, std::size_t count, std::function<void()> run);
void commit_products();
void wait_for_products(unsigned pending);
/// What this thread's copies have brought to shared memory, may be read by product_chunk().
void publish_shared();
/// shared_chunk() as a product of a warpgroup reads it: what was copied there and not published
/// ends the grid with std::logic_error.
[[nodiscard]] const std::byte* product_chunk(std::uint32_t address);

/// Barriers of 8 bytes in shared memory, which end with the block. A phase is over when `arrivals`
/// threads have arrived and as many bytes are on their way as they expect; those come at that
/// moment.
void make_barrier(std::uint32_t address, unsigned arrivals);
void arrive(std::uint32_t address, std::uint32_t expected_bytes);
/// Gives the turn back until the phase of this parity is over.
void wait_for_barrier(std::uint32_t address, unsigned parity);
/// Bytes of shared memory that `run` will bring there, which are garbage until then.
void copy_to_barrier(std::uint32_t address, std::uint32_t to, std::uint32_t size_bytes,
                     std::function<void()> run);
/// Waits until `count` threads have come here with this id.
void wait_for_threads(unsigned id, unsigned count);

/// 16 bytes of shared memory. An address that is not aligned, or outside, ends the grid with
/// std::logic_error.
[[nodiscard]] std::byte* shared_chunk(std::uint32_t address);

/// The last block and its last thread first, or the first ones: what lacks a barrier gives another
/// result in one of the two orders. At the start as CUDA_EMULATION_ORDER says ("backwards").
void run_backwards(bool on);
/// What cudaFuncSetAttribute allows a kernel besides, and a launch needs. Throw std::logic_error
/// where a device would refuse.
void allow_shared(const void* kernel, std::size_t size_bytes);
void check_shared(const void* kernel, std::size_t size_bytes);

/// This thread's number in its warp.
[[nodiscard]] unsigned lane_index();

/// Of the running block; filled with NaN before the first grid.
[[nodiscard]] std::byte* dynamic_shared_memory();

}  // namespace cuda_emulation
