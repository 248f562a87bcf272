#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/experts/experts.hpp"
#include "kernels/launch.cuh"

// Division of the products of experts into tiles of C. Tiles have one size, whatever an expert's
// number of places, so an element's sum has the same order among any other rows. The host does not
// know the offsets: it launches as many blocks as tiles there can be, and a block finds its own.
namespace train::kernels::cuda {

/// expert_matmul() of bf16 operands, on tensor cores. Launches, and does not wait. Throws
/// DeviceError.
void expert_matmul_mma(CudaStream& stream, const ExpertMatmulParams& params);

/// A block's tile of C, and the places of its expert.
struct ExpertTile {
  int expert = -1;    ///< -1: the block has no tile.
  int first_row = 0;  ///< Row of C: a place, or a row of W_e's gradient.
  int end_row = 0;    ///< One past the last row of C that belongs to the expert.
  int first_col = 0;
  int first_place = 0;
  int end_place = 0;
};

/// First slot of expert e, for tiles of `rows` places: enough for the tiles of those before it.
__device__ inline int first_slot(const std::int32_t* offsets, int e, int rows) {
  return (offsets[e] - offsets[0]) / rows + e;
}

/// The last expert whose first slot is not above `slot`. REQUIRES: all lanes of a warp call it.
__device__ inline int expert_of_slot(const std::int32_t* offsets, int experts, int rows, int slot) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int low = 0;  // Expert 0 begins at slot 0.
  int count = experts;
  while (count > 1) {
    const int step = (count + kWarpSize - 1) / kWarpSize;
    const int mine = lane * step;
    const bool begun = mine < count && first_slot(offsets, low + mine, rows) <= slot;
    const int before = (__popc(__ballot_sync(kAllLanes, begun)) - 1) * step;
    low += before;
    count = min(step, count - before);
  }
  return low;
}

/// Finds this block's tile of `rows` x `cols`; slots after an expert's last tile stay empty.
template <ExpertProduct product, int rows, int cols>
__device__ ExpertTile find_tile(const ExpertMatmulParams& p) {
  const std::int64_t cols_of_c = product == ExpertProduct::output ? p.n : p.k;
  const auto col_tiles = static_cast<unsigned>(divide_up(cols_of_c, cols));
  const unsigned row_tile = blockIdx.x / col_tiles;
  ExpertTile tile;
  tile.first_col = static_cast<int>(blockIdx.x - row_tile * col_tiles) * cols;
  if constexpr (product == ExpertProduct::weight) {
    const auto row_tiles = static_cast<unsigned>(divide_up(p.n, rows));
    tile.expert = static_cast<int>(row_tile / row_tiles);
    tile.first_row = static_cast<int>(row_tile % row_tiles) * rows;
    tile.end_row = static_cast<int>(p.n);
    tile.first_place = p.offsets[tile.expert];
    tile.end_place = p.offsets[tile.expert + 1];
  } else {
    const auto slot = static_cast<int>(row_tile);
    const int expert = expert_of_slot(p.offsets, static_cast<int>(p.experts), rows, slot);
    tile.first_place = p.offsets[expert];
    tile.end_place = tile.end_row = p.offsets[expert + 1];
    tile.first_row = tile.first_place + (slot - first_slot(p.offsets, expert, rows)) * rows;
    tile.expert = tile.first_row < tile.end_row ? expert : -1;
  }
  return tile;
}

/// Number of blocks: slots of tiles of `rows`, or tiles of all gradients, times columns.
inline dim3 tile_blocks(const ExpertMatmulParams& p, std::int64_t rows, std::int64_t cols) {
  const std::int64_t cols_of_c = p.product == ExpertProduct::output ? p.n : p.k;
  const std::int64_t row_tiles = p.product == ExpertProduct::weight
                                     ? p.experts * divide_up(p.n, rows)
                                 : p.places == 0 ? 0
                                                 : p.places / rows + p.experts;
  return dim3(static_cast<unsigned>(row_tiles * divide_up(cols_of_c, cols)));
}

/// Calls with<product>().
template <class With>
void for_product(ExpertProduct product, const With& with) {
  switch (product) {
    case ExpertProduct::output:
      return with.template operator()<ExpertProduct::output>();
    case ExpertProduct::input:
      return with.template operator()<ExpertProduct::input>();
    case ExpertProduct::weight:
      return with.template operator()<ExpertProduct::weight>();
  }
}

}  // namespace train::kernels::cuda
