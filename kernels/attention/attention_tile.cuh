#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/mma.cuh"

// Tiles of bf16 for attention on tensor cores: from memory to shared memory, and where a warp finds
// its operands there. Rows past the sequence and columns past the head are zeros.
namespace train::kernels::cuda {

constexpr int chunk_bytes = 16;
constexpr int chunk_columns = 8;  ///< bf16 in a chunk.

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / warp_size; }

/// Where in its warp a thread is.
struct Lane {
  int index = recomputed(static_cast<int>(threadIdx.x)) % warp_size;
  int group = index / 4;
  int pair = index % 4 * 2;
};

/// One head of a tensor in one sequence. Small, since it is kept in registers: the rest is computed
/// when asked.
struct MmaHead {
  int sequence, head, seq_len, columns;
  bool aligned;  ///< Every chunk of every tensor is aligned to 16 bytes, and whole.

  /// Of tensors with `heads` heads, the one that this block is for.
  template <class Params>
  __device__ MmaHead(const Params& p, std::int64_t heads, bool all_aligned)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(heads))),
        head(static_cast<int>(blockIdx.x % static_cast<unsigned>(heads))),
        seq_len(static_cast<int>(p.seq_len)),
        columns(static_cast<int>(p.head_dim)),
        aligned(all_aligned) {}
  /// In the same sequence, a head of another tensor.
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
  /// Of the head's first row in lse and delta. REQUIRES: it is a query head, of `heads`.
  [[nodiscard]] __device__ std::int64_t first_row(std::int64_t heads) const {
    return (recomputed(sequence) * heads + head) * seq_len;
  }
};

// A tile in shared memory: rows of `dim` bf16. Chunk c of row r lies at place c ^ (r % 8), so that
// the eight rows which an instruction reads at one column, or writes, meet different banks. Rows
// are aligned to their size: the place of a chunk is an exclusive or on the address.

template <int dim>
__device__ int place_of_chunk(int row, int chunk) {
  return row * dim * 2 + (chunk ^ (row % 8)) * chunk_bytes;
}

/// Begins to copy `rows` rows of a tensor, from row `first` on, to shared memory at `tile`; where
/// chunks are not aligned it copies them, element by element.
template <int dim, int rows, int threads>
__device__ void load_tile(int tile, const MmaHead& at, const void* data, const RowLayout& layout,
                          int first) {
  constexpr int chunks = dim / chunk_columns;
  constexpr int step = threads / chunks;  // Rows that all threads copy at once.
  static_assert(rows % step == 0 && threads % chunks == 0);
  const int me = recomputed(static_cast<int>(threadIdx.x));
  const int own = me / chunks;
  const int column = me % chunks * chunk_columns;
  // Rows of this thread that are there to be read.
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
    for (int c = 0; c < chunk_columns; ++c) {
      values[c] = i * step < there && column + c < at.columns ? from[c] : Bf16{0};
    }
    from += step * layout.outer_stride;
  }
}

/// Where this lane's row of the four matrices begins that cover rows [0, 16) and columns [0, 16) of
/// a tile from `first_row` on, in the order of multiply_add()'s a: rows first.
template <int dim>
__device__ SharedAddress rows_first(int tile, int first_row) {
  const int lane = Lane().index;
  const int place = place_of_chunk<dim>(first_row + lane % 16, lane / 16);
  return shared_address(dynamic_shared<unsigned char>()) + static_cast<SharedAddress>(tile + place);
}

/// The same, columns first: two columns' b0 and b1, of rows [0, 8) and then of [8, 16).
template <int dim>
__device__ SharedAddress columns_first(int tile, int first_row) {
  const int lane = Lane().index;
  const int place = place_of_chunk<dim>(first_row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  return shared_address(dynamic_shared<unsigned char>()) + static_cast<SharedAddress>(tile + place);
}

/// The address of chunks 2 k further on, and `rows` rows down (a multiple of 8). Only the three
/// lowest bits of a chunk's number have moved: the rest is a sum that the instruction does itself.
template <int dim>
__device__ SharedAddress moved(SharedAddress address, int k, int rows) {
  return (address ^ static_cast<SharedAddress>(k % 4 * 2 * chunk_bytes)) +
         static_cast<SharedAddress>(k / 4 * 8 * chunk_bytes + rows * dim * 2);
}

/// Whether chunks of a tensor can be copied whole: it depends on nothing but where it lies.
inline bool chunks_aligned(const void* data, const RowLayout& layout) {
  return reinterpret_cast<std::uintptr_t>(data) % chunk_bytes == 0 &&
         layout.outer_stride % chunk_columns == 0 && layout.inner_stride % chunk_columns == 0;
}

}  // namespace train::kernels::cuda
