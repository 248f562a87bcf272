#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_sight.cuh"
#include "kernels/attention/attention_tile.cuh"
#include "kernels/element.cuh"
#include "kernels/mma.cuh"
#include "kernels/reduce.cuh"

// Building blocks of both attention passes on tensor cores. Operands are bf16 tiles in shared
// memory; sums and scores stay in the registers of the warp that owns their rows. Rows past the
// sequence and columns past the head are zeros.
namespace train::kernels::cuda {

constexpr float kLog2OfE = 1.44269504F;

/// Tiling of a pass: a block owns warps * blocks * 16 rows (queries or keys), a warp blocks * 16 of
/// them, and loops over tiles of `others` rows of the other kind.
template <int head_columns, int warps_, int blocks_, int others_>
struct MmaShape {
  static constexpr int dim = head_columns;
  static constexpr int threads = warps_ * kWarpSize;
  static constexpr int blocks = blocks_;
  static constexpr int others = others_;
  static constexpr int warp_rows = blocks_ * 16;
  static constexpr int rows = warps_ * warp_rows;
  static constexpr int row_bytes = dim * 2;
  static constexpr int own_bytes = rows * row_bytes;      ///< Bytes of a tile of own rows.
  static constexpr int other_bytes = others * row_bytes;  ///< Bytes of a tile of other rows.
  /// Space for up to two resident tiles of own rows, two tiles of others in use and two being
  /// copied.
  static constexpr int shared_bytes(int own_tiles) {
    return own_tiles * own_bytes + 4 * other_bytes;
  }
};

/// Sums of a warp as multiply_add() leaves them: 16-row block m, 8-column block n.
template <int blocks, int columns>
using Sums = float[blocks][columns / 8][4];

template <int blocks, int columns>
__device__ void clear(Sums<blocks, columns>& sums) {
#pragma unroll
  for (int m = 0; m < blocks; ++m) {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[m][n][i] = 0.0F;
      }
    }
  }
}

/// scores = left right^T: the warp's rows of a tile of own rows, at rows_first(), times all rows of
/// a tile of other rows, at columns_first().
template <class Shape>
__device__ void multiply_rows(Sums<Shape::blocks, Shape::others>& scores, SharedAddress left,
                              SharedAddress right) {
  clear<Shape::blocks, Shape::others>(scores);
  // Limited unrolling: loading further ahead takes registers that the sums need.
#pragma unroll 4
  for (int k = 0; k < Shape::dim / 16; ++k) {
    std::uint32_t a[Shape::blocks][4];
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
      load_matrices(a[m], moved<Shape::dim>(left, k, m * 16));
    }
#pragma unroll
    for (int n = 0; n < Shape::others / 16; ++n) {
      std::uint32_t b[4];
      load_matrices(b, moved<Shape::dim>(right, k, n * 16));
#pragma unroll
      for (int m = 0; m < Shape::blocks; ++m) {
        multiply_add(scores[m][2 * n], a[m], b[0], b[1]);
        multiply_add(scores[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// sums += scores tile, with scores rounded to bf16: a lane's sums have the layout of a left
/// operand. `columns` of a tile of other rows at rows_first().
template <class Shape, int columns>
__device__ void multiply_scores(Sums<Shape::blocks, columns>& sums,
                                const Sums<Shape::blocks, Shape::others>& scores,
                                SharedAddress tile) {
#pragma unroll
  for (int k = 0; k < Shape::others / 16; ++k) {
    std::uint32_t a[Shape::blocks][4];
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pair)[4] = scores[m][2 * k + i / 2];
        a[m][i] = pack_pair(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, moved<Shape::dim>(tile, n, k * 16));
#pragma unroll
      for (int m = 0; m < Shape::blocks; ++m) {
        multiply_add(sums[m][2 * n], a[m], b[0], b[1]);
        multiply_add(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Rounds the warp's sums and writes them to its rows of a tensor, `columns` of them from
/// first_column on. Goes through the warp's rows of a tile of own rows that is no longer in use.
template <class Shape, int columns>
__device__ void store_sums(void* data, const RowLayout& layout, const MmaHead& at,
                           const Sums<Shape::blocks, columns>& sums, int tile, int first,
                           int first_column) {
  constexpr int chunks = columns / kChunkColumns;
  const int own = warp_index() * Shape::warp_rows;
  const Lane lane;
  unsigned char* shared = dynamic_shared<unsigned char>() + tile;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < chunks; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = own + m * 16 + half * 8 + lane.group;
        *reinterpret_cast<std::uint32_t*>(shared + place_of_chunk<Shape::dim>(row, n) +
                                          lane.pair * 2) =
            pack_pair(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
      }
    }
  }
  __syncwarp();
  auto* elements = static_cast<Bf16*>(data);
  for (int i = lane.index; i < Shape::warp_rows * chunks; i += kWarpSize) {
    const int row = own + i / chunks;
    const int column = first_column + i % chunks * kChunkColumns;
    if (first + row >= at.seq_len || column >= at.columns) {
      continue;
    }
    const unsigned char* from = shared + place_of_chunk<Shape::dim>(row, i % chunks);
    Bf16* to = at.row(elements, layout, first + row) + column;
    if (at.aligned) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      continue;
    }
    for (int c = 0; c < kChunkColumns && column + c < at.columns; ++c) {
      to[c] = reinterpret_cast<const Bf16*>(from)[c];
    }
  }
}

/// Replaces scores by cap * tanh(scale * score / cap). Accurate to 1e-7 of the cap.
template <class Shape>
__device__ void cap_scores(Sums<Shape::blocks, Shape::others>& scores, float scale, float cap) {
  const float exponent = 2.0F * kLog2OfE * scale / cap;
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float share = reciprocal(1.0F + power_of_two(scores[m][n][i] * exponent));
        scores[m][n][i] = fmaf(-2.0F * cap, share, cap);
      }
    }
  }
}

/// Factor that remains to be applied to a score before exponentiation in powers of two.
template <class Params>
__device__ float scale_of_scores(const Params& p) {
  return (p.softcap == 0.0F ? p.scale : 1.0F) * kLog2OfE;
}

/// Starts copying a tile of keys, with the tile of values behind it, to shared memory at `to`, from
/// the key head that `query` reads.
template <class Shape, class Params>
__device__ void load_keys(int to, const MmaHead& query, const Params& p, int first_key) {
  const int kv_head = query.head / heads_of_group(p);
  load_tile<Shape::dim, Shape::others, Shape::threads>(to, query.of(kv_head, p.head_dim), p.k,
                                                       p.k_layout, first_key);
  load_tile<Shape::dim, Shape::others, Shape::threads>(
      to + Shape::other_bytes, query.of(kv_head, p.value_dim), p.v, p.v_layout, first_key);
  commit_copies();
}

/// Writes the first visible key of each of the block's own rows, from row `first` on. Returns the
/// row at which the first tile of keys seen by any of them begins.
template <class Shape>
__device__ int find_first_keys(int* first_keys, const Sight& sight, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < Shape::rows; i += Shape::threads) {
    first_keys[i] = sight.first_key(first + i);
  }
  return sight.first_key(first) / Shape::others * Shape::others;
}

/// Grid with one block per head and tile of its rows, times `parts`.
template <class Shape>
Grid mma_grid(std::int64_t heads, std::int64_t seq_len, int own_tiles, int extra_bytes, int parts) {
  return {.blocks = dim3(static_cast<unsigned>(heads),
                         static_cast<unsigned>(divide_up(seq_len, Shape::rows)),
                         static_cast<unsigned>(parts)),
          .threads = dim3(Shape::threads),
          .shared_bytes = static_cast<std::size_t>(Shape::shared_bytes(own_tiles) + extra_bytes)};
}

}  // namespace train::kernels::cuda
