#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/attention/tensor_cores/attention_panels.cuh"
#include "kernels/boxes.cuh"
#include "kernels/row_layout.hpp"

// Work flow of wgmma attention on a multiprocessor. One warpgroup of a block issues copies of tiles
// to shared memory, the others multiply them, each at its own pace, so that one multiplies while
// another computes exponentials. A block works through items (one tile of a head's own rows each)
// and requests the next one while it works. An item's result does not depend on which block
// computes it, or when.
namespace train::kernels::cuda {

/// Order of items: sections of heads whose tensors stay in L2; within a section the longest tiles
/// first.
struct ItemOrder {
  int heads, tiles;
  int section;  ///< Heads per section.

  [[nodiscard]] __host__ __device__ int count() const { return heads * tiles; }
  struct Item {
    int head, tile;
  };
  [[nodiscard]] __device__ Item item(int index) const {
    const int begin = index / (section * tiles) * section;
    const int here = min(section, heads - begin);
    const int rest = index - begin * tiles;
    return {begin + rest % here, rest / here};
  }
};

/// `head_bytes`: bytes of a head that blocks read repeatedly.
inline ItemOrder order_of_items(std::int64_t heads, std::int64_t tiles, std::int64_t head_bytes) {
  constexpr std::int64_t cached_bytes = 20 << 20;
  const std::int64_t section = std::clamp<std::int64_t>(cached_bytes / head_bytes, 1, heads);
  return {static_cast<int>(heads), static_cast<int>(tiles), static_cast<int>(section)};
}

/// Tile of own rows of a head in a sequence, from row `first` on; passed in shared memory from the
/// warpgroup that takes items to those that compute them.
struct OwnTile {
  int sequence = -1;  ///< Negative: no items are left.
  int head = 0, first = 0;

  /// `heads`: number of heads per sequence.
  __device__ static OwnTile of(const ItemOrder::Item& item, std::int64_t heads, int first_row) {
    const int count = static_cast<int>(heads);
    return {item.head / count, item.head % count, first_row};
  }
  [[nodiscard]] __device__ bool there() const { return sequence >= 0; }
};
constexpr int kTileWords = 3;

__device__ inline void write_tile(int place, const OwnTile& tile) {
  volatile int* to = dynamic_shared<volatile int>() + place / static_cast<int>(sizeof(int));
  to[0] = tile.sequence;
  to[1] = tile.head;
  to[2] = tile.first;
}
[[nodiscard]] __device__ inline OwnTile read_tile(int place) {
  const volatile int* from = dynamic_shared<volatile int>() + place / static_cast<int>(sizeof(int));
  return {from[0], from[1], from[2]};
}

/// Query or key head, for helpers that find a head by its block.
template <class Params>
__device__ MmaHead head_at(const Params& p, int sequence, int head) {
  MmaHead at(p, p.heads, true);
  at.sequence = sequence;
  at.head = head;
  return at;
}

/// Queue of items: each of as many blocks as multiprocessors starts with one item and requests
/// more.
class ItemQueue {
 public:
  __device__ explicit ItemQueue(WorkCounters* counters) : counters_(counters) {}
  [[nodiscard]] __device__ int first() const { return static_cast<int>(blockIdx.x); }
  [[nodiscard]] __device__ int next() const {
    const int taken = atomicAdd(&counters_->taken, 1);  // Whole numbers: any order gives the same.
    return static_cast<int>(gridDim.x) + taken;
  }
  /// Called when the block is done. The last block resets the counters.
  __device__ void leave() const {
    const int gone = atomicAdd(&counters_->gone, 1);  // Whole numbers: any order gives the same.
    if (gone == static_cast<int>(gridDim.x) - 1) {
      counters_->taken = 0;
      counters_->gone = 0;
    }
  }

 private:
  WorkCounters* counters_;
};

/// Place in a ring of `size` buffers, with the parity of the phase that fills it.
template <int size>
class Ring {
 public:
  __device__ void next() {
    if (++stage_ == size) {
      stage_ = 0;
      phase_ ^= 1U;
    }
  }
  [[nodiscard]] __device__ int stage() const { return stage_; }
  [[nodiscard]] __device__ unsigned phase() const { return phase_; }
  /// Parity of the phase that emptied the buffer before this fill.
  [[nodiscard]] __device__ unsigned emptied() const { return phase_ ^ 1U; }

 private:
  int stage_ = 0;
  unsigned phase_ = 0;
};

/// Ring packed into one register.
template <int size>
class SmallRing {
 public:
  static_assert((size & (size - 1)) == 0);
  __device__ void next() { ++turn_; }
  [[nodiscard]] __device__ int stage() const { return static_cast<int>(turn_ % size); }
  [[nodiscard]] __device__ unsigned phase() const { return turn_ / size % 2; }
  [[nodiscard]] __device__ unsigned emptied() const { return phase() ^ 1U; }

 private:
  unsigned turn_ = 0;
};

/// Arrives once for the warp, whose lanes have all finished with the barrier's buffer and no longer
/// wait at it.
__device__ inline void release(Barrier barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) {
    arrive(barrier);
  }
}

/// Index of this thread's warpgroup in the block.
__device__ inline int warpgroup_index() {
  return of_warp(static_cast<int>(threadIdx.x) / kGroupThreads);
}

/// Starts copying rows [row, row + rows) of a head to the tile at `to`; called by one thread.
template <int dim, int rows>
__device__ void copy_tile(int to, const BoxMap& from, Barrier barrier, int row, int head,
                          int sequence) {
#pragma unroll
  for (int panel = 0; panel < dim / kPanelColumns; ++panel) {
    copy_box(panel_address(to + panel * rows * kPanelRowBytes), from, barrier,
             panel * kPanelColumns, row, head, sequence);
  }
}

/// Rounds a warpgroup's sums and writes them to its rows of a tensor; row `first` is the block's
/// first. Goes through the warpgroup's rows of the tile at `tile`, which is no longer in use: the
/// whole warpgroup has multiplied its contents.
template <class Shape>
__device__ void store_panels(void* data, const RowLayout& layout, const MmaHead& at,
                             const Sums<1, Shape::dim>& sums, int tile, int first) {
  using TilePlaces = PanelPlaces<Shape::rows>;
  constexpr int chunks = Shape::dim / kChunkColumns;
  const int own = of_warp(warp_index()) * Shape::warp_rows;
  const Lane lane;
  unsigned char* shared = dynamic_shared<unsigned char>() + tile;
#pragma unroll
  for (int n = 0; n < chunks; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = TilePlaces::of(own + half * 8 + lane.group, n) + lane.pair * 2;
      *reinterpret_cast<std::uint32_t*>(shared + place) =
          pack_pair(sums[0][n][half * 2], sums[0][n][half * 2 + 1]);
    }
  }
  __syncwarp();
  auto* elements = static_cast<Bf16*>(data);
#pragma unroll
  for (int i = 0; i < Shape::warp_rows * chunks / kWarpSize; ++i) {
    const int row = own + (i * kWarpSize + lane.index) / chunks;
    const int chunk = lane.index % chunks;
    const bool inside = first + row >= 0 && first + row < at.seq_len;
    if (inside && chunk * kChunkColumns < at.columns) {
      *reinterpret_cast<uint4*>(at.row(elements, layout, first + row) + chunk * kChunkColumns) =
          *reinterpret_cast<const uint4*>(shared + TilePlaces::of(row, chunk));
    }
  }
}

/// Grid of at most one block per multiprocessor.
inline Grid flow_grid(const ItemOrder& order, int threads, int shared_bytes) {
  return {.blocks = dim3(static_cast<unsigned>(std::min(order.count(), multiprocessors()))),
          .threads = dim3(static_cast<unsigned>(threads)),
          .shared_bytes = static_cast<std::size_t>(shared_bytes)};
}

}  // namespace train::kernels::cuda
