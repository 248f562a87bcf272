#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/mma.cuh"

// Bf16 tiles for attention on tensor cores: copies to shared memory, and the places of a warp's
// operands there. Rows past the sequence and columns past the head are zeros.
namespace train::kernels::cuda {

constexpr int kChunkBytes = 16;
constexpr int kChunkColumns = 8;  ///< Number of bf16 in a chunk.

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarpSize; }

/// Place of a thread in its warp.
struct Lane {
  int index = recomputed(static_cast<int>(threadIdx.x)) % kWarpSize;
  int group = index / 4;
  int pair = index % 4 * 2;
};

/// Head of a tensor in one sequence. Small, as it is kept in registers: other values are computed
/// on demand.
struct MmaHead {
  int sequence, head, seq_len, columns;
  bool aligned;  ///< Every chunk of every tensor is whole and aligned to 16 bytes.

  /// Picks this block's head among tensors with `heads` heads.
  template <class Params>
  __device__ MmaHead(const Params& p, std::int64_t heads, bool all_aligned)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(heads))),
        head(static_cast<int>(blockIdx.x % static_cast<unsigned>(heads))),
        seq_len(static_cast<int>(p.seq_len)),
        columns(static_cast<int>(p.head_dim)),
        aligned(all_aligned) {}
  /// Another tensor's head in the same sequence.
  [[nodiscard]] __device__ MmaHead of(int other_head, std::int64_t other_columns) const {
    MmaHead other = *this;
    other.head = other_head;
    other.columns = static_cast<int>(other_columns);
    return other;
  }
  template <class T>
  [[nodiscard]] __device__ T* row(T* data, const RowLayout& layout, int row_index) const {
    const std::int64_t token =
        static_cast<std::int64_t>(recomputed(sequence)) * seq_len + row_index;
    return data + token * layout.outer_stride + head * layout.inner_stride;
  }
  /// Index of the head's first row in lse and delta. REQUIRES: a query head, of `heads`.
  [[nodiscard]] __device__ std::int64_t first_row(std::int64_t heads) const {
    return (recomputed(sequence) * heads + head) * seq_len;
  }
};

// Tile in shared memory: rows of `dim` bf16. Chunk c of row r lies at place c ^ (r % 8), so that
// the eight rows that an instruction reads or writes at one column use different banks. Rows are
// aligned to their size: a chunk's place is an exclusive or on the address.

template <int dim>
__device__ int place_of_chunk(int row, int chunk) {
  return row * dim * 2 + (chunk ^ (row % 8)) * kChunkBytes;
}

/// Starts copying `rows` rows of a tensor, from row `first` on, to shared memory at `tile`;
/// unaligned chunks are copied at once, element by element.
template <int dim, int rows, int threads>
__device__ void load_tile(int tile, const MmaHead& at, const void* data, const RowLayout& layout,
                          int first) {
  constexpr int chunks = dim / kChunkColumns;
  constexpr int step = threads / chunks;  // Rows copied by all threads at a time.
  static_assert(rows % step == 0 && threads % chunks == 0);
  const int me = recomputed(static_cast<int>(threadIdx.x));
  const int own = me / chunks;
  const int column = me % chunks * kChunkColumns;
  // Readable rows of this thread.
  const int there = column < at.columns ? at.seq_len - first - own : 0;
  const Bf16* from = at.row(static_cast<const Bf16*>(data), layout, first + own) + column;
  unsigned char* shared = dynamic_shared<unsigned char>() + tile;
  if (at.aligned) {
    const SharedAddress to = shared_address(shared);
#pragma unroll
    for (int i = 0; i < rows / step; ++i) {
      const bool inside = i * step < there;
      const int place = place_of_chunk<dim>(own + i * step, me % chunks);
      copy_async(to + static_cast<SharedAddress>(place), from, inside);
      from += step * layout.outer_stride;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < rows / step; ++i) {
    auto* values =
        reinterpret_cast<Bf16*>(shared + place_of_chunk<dim>(own + i * step, me % chunks));
#pragma unroll 1
    for (int c = 0; c < kChunkColumns; ++c) {
      values[c] = i * step < there && column + c < at.columns ? from[c] : Bf16{0};
    }
    from += step * layout.outer_stride;
  }
}

/// Address of this lane's row of the four matrices that cover rows [0, 16) and columns [0, 16) of a
/// tile from `first_row` on, in the order of multiply_add()'s a: rows first.
template <int dim>
__device__ SharedAddress rows_first(int tile, int first_row) {
  const int lane = Lane().index;
  const int place = place_of_chunk<dim>(first_row + lane % 16, lane / 16);
  return shared_address(dynamic_shared<unsigned char>()) + static_cast<SharedAddress>(tile + place);
}

/// Address like rows_first(), columns first: b0 and b1 of two columns, of rows [0, 8) and then of
/// [8, 16).
template <int dim>
__device__ SharedAddress columns_first(int tile, int first_row) {
  const int lane = Lane().index;
  const int place = place_of_chunk<dim>(first_row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  return shared_address(dynamic_shared<unsigned char>()) + static_cast<SharedAddress>(tile + place);
}

/// Address of the chunk 2 k further on and `rows` rows down (a multiple of 8). Only the lowest
/// three bits of a chunk's number are swizzled; the rest is an addition that the instruction does
/// itself.
template <int dim>
__device__ SharedAddress moved(SharedAddress address, int k, int rows) {
  return (address ^ static_cast<SharedAddress>(k % 4 * 2 * kChunkBytes)) +
         static_cast<SharedAddress>(k / 4 * 8 * kChunkBytes + rows * dim * 2);
}

/// True if chunks of a tensor can be copied whole, which depends only on its place in memory.
inline bool chunks_aligned(const void* data, const RowLayout& layout) {
  return reinterpret_cast<std::uintptr_t>(data) % kChunkBytes == 0 &&
         layout.outer_stride % kChunkColumns == 0 && layout.inner_stride % kChunkColumns == 0;
}

}  // namespace train::kernels::cuda
