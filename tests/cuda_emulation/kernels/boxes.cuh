#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.hpp"
#include "kernels/kernel_list.hpp"
#include "kernels/mma.cuh"
#include "kernels/row_layout.hpp"
#include "tests/cuda_emulation/block.hpp"

// In the place of the product's header of this name: barriers that threads give their turn back at,
// and boxes that come at the latest moment, when their barrier's phase is over; until then garbage
// lies where they will.
namespace train::kernels::cuda {

using Barrier = SharedAddress;
constexpr int kBarrierBytes = 8;

inline void make_barrier(Barrier barrier, int arrivals) {
  cuda_emulation::make_barrier(barrier, static_cast<unsigned>(arrivals));
}
inline void publish_barriers() {}
inline void arrive(Barrier barrier) { cuda_emulation::arrive(barrier, 0); }
inline void arrive_and_expect(Barrier barrier, int size_bytes) {
  cuda_emulation::arrive(barrier, static_cast<std::uint32_t>(size_bytes));
}
inline void await(Barrier barrier, unsigned parity) {
  cuda_emulation::wait_for_barrier(barrier, parity);
}

constexpr int kBoxColumns = 64;
constexpr int kBoxRowBytes = kBoxColumns * 2;

struct BoxMap {
  const std::uint16_t* data = nullptr;
  std::int64_t columns = 0, tokens = 0, heads = 0, sequences = 0;
  RowLayout layout;
  int rows = 0;
};

inline BoxMap box_map(const void* data, std::int64_t columns, std::int64_t tokens,
                      std::int64_t heads, std::int64_t sequences, const RowLayout& layout,
                      int rows) {
  const auto aligned = [](std::int64_t elements) { return elements % 8 == 0; };
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0 || !aligned(layout.outer_stride) ||
      !aligned(layout.inner_stride) || rows > 256) {
    throw DeviceError("cuTensorMapEncodeTiled: what no device takes");
  }
  return {static_cast<const std::uint16_t*>(data), columns, tokens, heads, sequences, layout, rows};
}

namespace emulated {

inline void copy_row(std::byte* to, const BoxMap& from, int column, int row, int head,
                     int sequence) {
  const std::int64_t columns = std::clamp<std::int64_t>(from.columns - column, 0, kBoxColumns);
  const bool inside = row >= 0 && row < from.tokens;
  std::memset(to, 0, kBoxRowBytes);
  if (inside && columns > 0) {
    const std::int64_t token = sequence * from.tokens + row;
    std::memcpy(
        to, from.data + token * from.layout.outer_stride + head * from.layout.inner_stride + column,
        static_cast<std::size_t>(columns) * sizeof(std::uint16_t));
  }
}

}  // namespace emulated

inline void copy_box(SharedAddress to, const BoxMap& from, Barrier barrier, int column, int row,
                     int head, int sequence) {
  const auto size_bytes = static_cast<std::uint32_t>(from.rows * kBoxRowBytes);
  cuda_emulation::copy_to_barrier(
      barrier, to, size_bytes, [to, &from, column, row, head, sequence] {
        for (int r = 0; r < from.rows; ++r) {
          std::byte chunks[kBoxRowBytes];
          emulated::copy_row(chunks, from, column, row + r, head, sequence);
          for (int c = 0; c < kBoxRowBytes / 16; ++c) {
            const int place = r * kBoxRowBytes + (c ^ (r % 8)) * 16;
            std::memcpy(cuda_emulation::shared_chunk(to + static_cast<SharedAddress>(place)),
                        chunks + c * 16, 16);
          }
        }
      });
}

template <int count>
void take_registers() {}
template <int count>
void give_registers() {}

inline void sync_threads(int id, int count) {
  cuda_emulation::wait_for_threads(static_cast<unsigned>(id), static_cast<unsigned>(count));
}
inline int of_warp(int value) { return cuda_emulation::value_of_lane(value, 0); }
inline void compute_here(float /*x*/, SharedAddress /*place*/) {}

}  // namespace train::kernels::cuda
