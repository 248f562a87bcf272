#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_sight.cuh"
#include "kernels/reduce.cuh"

// Building blocks of both fp32 attention passes: square tiles of scores, 16 x 16 threads with a
// small square each, operands in shared memory. Rows past the sequence and columns past the head
// are zeros.
namespace train::kernels::cuda {

constexpr int kTileSide = 16;
static_assert(kTileSide * kTileSide == kBlockThreads);

/// Sizes for heads of up to `dim` columns.
template <int dim>
struct Tile {
  static constexpr int rows = dim <= 128 ? 64 : 32;  ///< Queries and keys of a tile, limited by
                                                     ///< shared memory.
  static constexpr int own_rows = rows / kTileSide;  ///< Queries and keys of one thread.
  static constexpr int own_columns = dim / kTileSide;
  // One more than the width, so that threads reading down a column use different banks.
  static constexpr int stride = dim + 1;
  static constexpr int score_stride = rows + 1;
  static constexpr int size = rows * stride;
  static constexpr int score_size = rows * score_stride;
  /// Blocks of the backward pass per multiprocessor that shared memory allows; register use is
  /// limited to match.
  static constexpr int blocks_at_once = dim <= 64 ? 2 : 1;
};

/// One head of a tensor in one sequence.
struct HeadOfBlock {
  int sequence, head, seq_len, columns;

  /// Picks this block's head among tensors with `heads` heads.
  template <class Params>
  __device__ HeadOfBlock(const Params& p, std::int64_t heads)
      : sequence(static_cast<int>(blockIdx.x / static_cast<unsigned>(heads))),
        head(static_cast<int>(blockIdx.x % static_cast<unsigned>(heads))),
        seq_len(static_cast<int>(p.seq_len)),
        columns(static_cast<int>(p.head_dim)) {}
  /// Another tensor's head in the same sequence.
  [[nodiscard]] __device__ HeadOfBlock of(int other_head, std::int64_t other_columns) const {
    HeadOfBlock other = *this;
    other.head = other_head;
    other.columns = static_cast<int>(other_columns);
    return other;
  }
  /// Index of the head's first row in lse and delta. REQUIRES: a query head, of `heads`.
  [[nodiscard]] __device__ std::int64_t first_row(std::int64_t heads) const {
    return (sequence * heads + head) * seq_len;
  }
  template <class T>
  [[nodiscard]] __device__ T* in(T* data, const RowLayout& layout) const {
    return data + static_cast<std::int64_t>(sequence) * seq_len * layout.outer_stride +
           head * layout.inner_stride;
  }
};

__device__ inline int thread_row() { return static_cast<int>(threadIdx.x) / kTileSide; }
__device__ inline int thread_column() { return static_cast<int>(threadIdx.x) % kTileSide; }

/// Copies rows [first, first + Tile::rows) of a head to shared memory.
template <int dim>
__device__ void load_tile(float* tile, const HeadOfBlock& at, const void* data,
                          const RowLayout& layout, int first) {
  const float* from = at.in(static_cast<const float*>(data), layout) + first * layout.outer_stride;
  for (int i = static_cast<int>(threadIdx.x); i < Tile<dim>::rows * dim; i += kBlockThreads) {
    const int row = i / dim;
    const int column = i % dim;
    const bool inside = first + row < at.seq_len && column < at.columns;
    tile[row * Tile<dim>::stride + column] =
        inside ? from[row * layout.outer_stride + column] : 0.0F;
  }
}

/// Part of a tile held by one thread: of scores, rows own_rows * thread_row() + i and columns
/// thread_column() + kTileSide * j; of outputs the same rows and all columns thread_column() +
/// kTileSide * j.
template <int dim>
using Scores = float[Tile<dim>::own_rows][Tile<dim>::own_rows];
template <int dim>
using Outputs = float[Tile<dim>::own_rows][Tile<dim>::own_columns];

/// result = left right^T, both tiles of rows of the head.
template <int dim>
__device__ void multiply_rows(Scores<dim>& result, const float* left, const float* right) {
  using T = Tile<dim>;
  const float* l = left + thread_row() * T::own_rows * T::stride;
  const float* r = right + thread_column() * T::stride;
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      result[i][j] = 0.0F;
    }
  }
#pragma unroll 4
  for (int c = 0; c < dim; ++c) {
    float own_left[T::own_rows];
#pragma unroll
    for (int i = 0; i < T::own_rows; ++i) {
      own_left[i] = l[i * T::stride + c];
    }
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      const float own_right = r[j * kTileSide * T::stride + c];
#pragma unroll
      for (int i = 0; i < T::own_rows; ++i) {
        result[i][j] = fmaf(own_left[i], own_right, result[i][j]);
      }
    }
  }
}

template <int dim>
__device__ void store_scores(float* to, const Scores<dim>& scores) {
  using T = Tile<dim>;
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      to[(thread_row() * T::own_rows + i) * T::score_stride + thread_column() + kTileSide * j] =
          scores[i][j];
    }
  }
}

/// result += scores tile, or with `transposed` result += scores^T tile. Sums in tile order.
template <int dim, bool transposed>
__device__ void multiply_scores(Outputs<dim>& result, const float* scores, const float* tile) {
  using T = Tile<dim>;
  const int first = thread_row() * T::own_rows;
#pragma unroll 4
  for (int k = 0; k < T::rows; ++k) {
    float left[T::own_rows];
#pragma unroll
    for (int i = 0; i < T::own_rows; ++i) {
      left[i] = transposed ? scores[k * T::score_stride + first + i]
                           : scores[(first + i) * T::score_stride + k];
    }
#pragma unroll
    for (int j = 0; j < T::own_columns; ++j) {
      const float right = tile[k * T::stride + thread_column() + kTileSide * j];
#pragma unroll
      for (int i = 0; i < T::own_rows; ++i) {
        result[i][j] = fmaf(left[i], right, result[i][j]);
      }
    }
  }
}

template <int dim>
__device__ void clear(Outputs<dim>& values) {
#pragma unroll
  for (int i = 0; i < Tile<dim>::own_rows; ++i) {
#pragma unroll
    for (int j = 0; j < Tile<dim>::own_columns; ++j) {
      values[i][j] = 0.0F;
    }
  }
}

/// Writes the thread's outputs times factor[own row] to rows [first, ...) of a head.
template <int dim>
__device__ void store_outputs(void* data, const RowLayout& layout, const HeadOfBlock& at,
                              const Outputs<dim>& values, const float* factor, int first) {
  using T = Tile<dim>;
  float* to = at.in(static_cast<float*>(data), layout);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const int row = first + thread_row() * T::own_rows + i;
#pragma unroll
    for (int j = 0; j < T::own_columns; ++j) {
      const int column = thread_column() + kTileSide * j;
      if (row < at.seq_len && column < at.columns) {
        to[row * layout.outer_stride + column] = values[i][j] * factor[i];
      }
    }
  }
}

/// Computes the first visible key of each of a thread's queries.
template <int dim>
struct FirstKeys {
  int row[Tile<dim>::own_rows];

  __device__ FirstKeys(const Sight& sight, int first_query) {
#pragma unroll
    for (int i = 0; i < Tile<dim>::own_rows; ++i) {
      row[i] = sight.first_key(first_query + thread_row() * Tile<dim>::own_rows + i);
    }
  }
};

/// Grid with one block per head and tile of its rows.
template <int dim>
Grid attention_grid(std::int64_t heads, std::int64_t seq_len, int shared_floats) {
  return {.blocks = dim3(static_cast<unsigned>(heads),
                         static_cast<unsigned>(divide_up(seq_len, Tile<dim>::rows))),
          .shared_bytes = static_cast<std::size_t>(shared_floats) * sizeof(float)};
}

}  // namespace train::kernels::cuda
