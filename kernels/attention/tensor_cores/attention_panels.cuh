#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_tile.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"
#include "kernels/wgmma.cuh"

// Bf16 tiles in shared memory for warpgroup products: consecutive panels of 64 columns with rows of
// 128 bytes. Chunk c of row r of a panel lies at place c ^ (r % 8), the ISA's 128-byte swizzle.
// Panels are aligned to 1024 bytes.
namespace train::kernels::cuda {

constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = kPanelColumns * 2;
constexpr int kEightRowsBytes = 8 * kPanelRowBytes;

/// Addresses of chunks in a tile of `rows` rows.
template <int rows>
struct PanelPlaces {
  static constexpr int panel_bytes = rows * kPanelRowBytes;
  static __device__ int of(int row, int chunk) {
    constexpr int panel_chunks = kPanelColumns / kChunkColumns;
    return chunk / panel_chunks * panel_bytes + row * kPanelRowBytes +
           ((chunk % panel_chunks) ^ (row % 8)) * kChunkBytes;
  }
};

/// Descriptor of the operand at `begin`: bits 0 to 13 hold its address, 16 to 29 the bytes between
/// panels if rows lie along the columns (unused otherwise), 32 to 45 the bytes between groups of
/// eight rows, all in units of 16; bits 62 and 63 select the 128-byte swizzle.
__device__ inline WarpgroupOperand operand_at(SharedAddress begin, int panel_bytes) {
  constexpr auto swizzle = std::uint64_t{1} << 62U;
  constexpr auto group = static_cast<std::uint64_t>(kEightRowsBytes / 16) << 32U;
  return swizzle | group | static_cast<std::uint64_t>(panel_bytes / 16) << 16U |
         (static_cast<std::uint64_t>(begin) & 0x3ffffU) >> 4U;
}

/// Operand of columns [16 k, 16 k + 16) of a tile's rows from `first_row` on, a multiple of eight;
/// k runs along the columns.
template <int rows>
__device__ WarpgroupOperand operand_along_rows(SharedAddress tile, int first_row, int k) {
  constexpr int of_panel = kPanelColumns / 16;
  const int begin = k / of_panel * PanelPlaces<rows>::panel_bytes + k % of_panel * 32;
  return operand_at(tile + static_cast<SharedAddress>(begin + first_row * kPanelRowBytes), 16);
}

/// Operand of rows [16 k, 16 k + 16) of all columns of a tile; k runs down the rows.
template <int rows>
__device__ WarpgroupOperand operand_down_rows(SharedAddress tile, int k) {
  return operand_at(tile + static_cast<SharedAddress>(k * 2 * kEightRowsBytes),
                    PanelPlaces<rows>::panel_bytes);
}

constexpr int kGroupRows = 64;  ///< Number of a warpgroup's own rows.
constexpr int kGroupThreads = 128;

/// Address of a place in the block's dynamic shared memory.
__device__ inline SharedAddress panel_address(int place) {
  return shared_address(dynamic_shared<unsigned char>() + place);
}

/// Rounds a tile's sums to bf16, as left operands of products with 16 other rows each.
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

/// Starts sums = left right^T: the warpgroup's rows of the own tile at place `left`, times all rows
/// of the other tile at place `right`.
template <class Shape>
__device__ void begin_rows(Sums<1, Shape::others>& sums, int left, int right, int group) {
  const SharedAddress own = panel_address(left);
  const SharedAddress others = panel_address(right);
#pragma unroll
  for (int k = 0; k < Shape::dim / 16; ++k) {
    multiply_warpgroup<0>(sums[0], operand_along_rows<Shape::rows>(own, group * kGroupRows, k),
                          operand_along_rows<Shape::others>(others, 0, k), k > 0);
  }
  commit_products();
}
/// Starts sums += scores tile, for a tile of other rows.
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
