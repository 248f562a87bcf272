#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_tile.cuh"
#include "kernels/wgmma.cuh"

// Tiles of bf16 in shared memory for products of warpgroups: panels of 64 columns, one behind the
// other, each of rows of 128 bytes. Chunk c of row r of a panel lies at place c ^ (r % 8): what the
// ISA calls a swizzle of 128 bytes. Panels are aligned to 1024 bytes.
namespace train::kernels::cuda {

constexpr int panel_columns = 64;
constexpr int panel_row_bytes = panel_columns * 2;
constexpr int eight_rows_bytes = 8 * panel_row_bytes;

/// Where chunks of a tile of `rows` rows lie.
template <int rows>
struct PanelPlaces {
  static constexpr int panel_bytes = rows * panel_row_bytes;
  static __device__ int of(int row, int chunk) {
    constexpr int panel_chunks = panel_columns / chunk_columns;
    return chunk / panel_chunks * panel_bytes + row * panel_row_bytes +
           ((chunk % panel_chunks) ^ (row % 8)) * chunk_bytes;
  }
};

/// The operand that begins at `begin`: bits 0 to 13 its address, 16 to 29 the bytes from one panel
/// to the next where rows lie along the columns (else nothing reads them), 32 to 45 those from
/// eight rows to the next eight, in units of 16; bits 62 and 63 the swizzle of 128 bytes.
__device__ inline WarpgroupOperand operand_at(SharedAddress begin, int panel_bytes) {
  constexpr auto swizzle = std::uint64_t{1} << 62U;
  constexpr auto group = static_cast<std::uint64_t>(eight_rows_bytes / 16) << 32U;
  return swizzle | group | static_cast<std::uint64_t>(panel_bytes / 16) << 16U |
         (static_cast<std::uint64_t>(begin) & 0x3ffffU) >> 4U;
}

/// Columns [16 k, 16 k + 16) of the rows of a tile from `first_row` on, a multiple of eight: k runs
/// along its columns.
template <int rows>
__device__ WarpgroupOperand operand_along_rows(SharedAddress tile, int first_row, int k) {
  constexpr int of_panel = panel_columns / 16;
  const int begin = k / of_panel * PanelPlaces<rows>::panel_bytes + k % of_panel * 32;
  return operand_at(tile + static_cast<SharedAddress>(begin + first_row * panel_row_bytes), 16);
}

/// Rows [16 k, 16 k + 16) of all columns of a tile: k runs down its rows.
template <int rows>
__device__ WarpgroupOperand operand_down_rows(SharedAddress tile, int k) {
  return operand_at(tile + static_cast<SharedAddress>(k * 2 * eight_rows_bytes),
                    PanelPlaces<rows>::panel_bytes);
}

constexpr int group_rows = 64;  ///< Own rows of a warpgroup.
constexpr int group_threads = 128;

/// Where a place of the block's dynamic shared memory is.
__device__ inline SharedAddress panel_address(int place) {
  return shared_address(dynamic_shared<unsigned char>() + place);
}

/// Sums of a tile rounded to bf16, as left operands of products with 16 other rows each.
template <class Shape>
using Rounded = std::uint32_t[Shape::others / 16][4];

template <class Shape>
__device__ void round_scores(Rounded<Shape>& rounded, const Sums<1, Shape::others>& scores) {
#pragma unroll
  for (int k = 0; k < Shape::others / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&pair)[4] = scores[0][2 * k + i / 2];
      rounded[k][i] = pack_pair(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
    }
  }
}

/// Begins sums = left right^T, of the warpgroup's rows of the own tile at place `left` and all rows
/// of the tile of others at place `right`.
template <class Shape>
__device__ void begin_rows(Sums<1, Shape::others>& sums, int left, int right, int group) {
  const SharedAddress own = panel_address(left);
  const SharedAddress others = panel_address(right);
#pragma unroll
  for (int k = 0; k < Shape::dim / 16; ++k) {
    multiply_warpgroup<0>(sums[0], operand_along_rows<Shape::rows>(own, group * group_rows, k),
                          operand_along_rows<Shape::others>(others, 0, k), k > 0);
  }
  commit_products();
}
/// Begins sums += scores tile, of a tile of others.
template <class Shape>
__device__ void begin_sums(Sums<1, Shape::dim>& sums, const Rounded<Shape>& scores, int tile) {
  const SharedAddress others = panel_address(tile);
#pragma unroll
  for (int k = 0; k < Shape::others / 16; ++k) {
    multiply_warpgroup<1>(sums[0], scores[k], operand_down_rows<Shape::others>(others, k), true);
  }
  commit_products();
}

}  // namespace train::kernels::cuda
