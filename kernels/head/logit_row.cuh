#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

// Access of a block to one row of logits. Threads take units of neighbouring columns in turn, two
// per tile, wherever the row lies: the order of sums depends only on the number of columns.
namespace train::kernels::cuda {

constexpr int kMostThreads = 1024;
constexpr int kMostWarps = kMostThreads / kWarpSize;
constexpr int kUnitColumns = 8;
constexpr int kTileUnits = 2;  // Units per thread: 64 bytes in flight.
constexpr int kTileColumns = kTileUnits * kUnitColumns;

/// Threads of a row's block, at least a tile each; depends only on the number of columns.
inline int row_threads(std::int64_t vocab) {
  return vocab >= kMostThreads * kTileColumns ? kMostThreads
         : vocab >= 256 * kTileColumns        ? 256
                                              : 64;
}

/// Logits from the head's products: softcap tanh(scale product / softcap), or scale product without
/// a cap.
struct LogitShape {
  float scale, softcap;

  [[nodiscard]] __device__ float logit(float product) const {
    return softcap > 0.0F ? softcap * tanhf(product * (scale / softcap)) : product * scale;
  }
  /// Factor that the cap applies to a gradient at `logit`.
  [[nodiscard]] __device__ float slope(float logit) const {
    const float tanh = logit * (1.0F / softcap);
    return softcap > 0.0F ? fmaf(-tanh, tanh, 1.0F) : 1.0F;
  }
};

/// Logits of a row; the units read last are kept in shared memory. `aligned`: the row begins at a
/// multiple of 16 bytes; otherwise it is read element by element. `shaped`: memory holds products,
/// which `shape` turns into logits; otherwise `shape` is unused.
template <bool aligned, bool shaped>
struct LogitRow {
  const float* logits;
  int vocab, units;
  int first_kept;  ///< `units` if none is kept.
  float* kept;     ///< First halves of units, then second halves: a warp's reads are contiguous.
  LogitShape shape;

  [[nodiscard]] __device__ int tiles() const {
    const int of_tile = kTileUnits * static_cast<int>(blockDim.x);
    return (units + of_tile - 1) / of_tile;
  }
  /// Unit `j` of this thread in a tile.
  [[nodiscard]] __device__ int unit_of(int tile, int j) const {
    return (tile * kTileUnits + j) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  }
  [[nodiscard]] __device__ bool whole(int unit) const { return (unit + 1) * kUnitColumns <= vocab; }

  /// Logit of one column.
  [[nodiscard]] __device__ float at(int column) const {
    return shaped ? shape.logit(logits[column]) : logits[column];
  }
  /// This thread's logits of a tile; -Inf beyond the row. The first read returns the raw memory,
  /// which shape_tile() turns into logits when they are needed.
  template <bool again>
  __device__ void load(int tile, float (&values)[kTileColumns]) const {
#pragma unroll
    for (int j = 0; j < kTileUnits; ++j) {
      const int unit = unit_of(tile, j);
      float* to = values + j * kUnitColumns;
      if (again && unit >= first_kept && unit < units) {
        from_shared(unit - first_kept, to);
      } else {
        from_memory(unit, to);
        if constexpr (again) {
          shape_unit(unit, to);
        }
      }
    }
  }
  __device__ void shape_tile(int tile, float (&values)[kTileColumns]) const {
#pragma unroll
    for (int j = 0; j < kTileUnits; ++j) {
      shape_unit(unit_of(tile, j), values + j * kUnitColumns);
    }
  }
  /// Keeps the values of load() if there is room. Each thread reads back only its own.
  __device__ void keep(int tile, const float (&values)[kTileColumns]) const {
    constexpr int half = kUnitColumns / 2;
#pragma unroll
    for (int j = 0; j < kTileUnits; ++j) {
      const int place = unit_of(tile, j) - first_kept;
      if (place >= 0 && place < units - first_kept) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          Several<float, half> chunk;
#pragma unroll
          for (int c = 0; c < half; ++c) {
            chunk.value[c] = values[j * kUnitColumns + part * half + c];
          }
          chunk.store(kept, chunk_offset(place, part));
        }
      }
    }
  }

 private:
  [[nodiscard]] __device__ int chunk_offset(int place, int part) const {
    return (part * (units - first_kept) + place) * (kUnitColumns / 2);
  }
  __device__ void from_shared(int place, float* to) const {
    constexpr int half = kUnitColumns / 2;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const Several<float, half> chunk(kept, chunk_offset(place, part));
#pragma unroll
      for (int c = 0; c < half; ++c) {
        to[part * half + c] = chunk.value[c];
      }
    }
  }
  __device__ void shape_unit(int unit, float* values) const {
    if constexpr (shaped) {
#pragma unroll
      for (int c = 0; c < kUnitColumns; ++c) {
        values[c] = unit * kUnitColumns + c < vocab ? shape.logit(values[c]) : values[c];
      }
    }
  }
  __device__ void from_memory(int unit, float* to) const {
    const int first = unit * kUnitColumns;
    if (aligned && whole(unit)) {
      const Several<float, kUnitColumns> all(logits, first);
#pragma unroll
      for (int c = 0; c < kUnitColumns; ++c) {
        to[c] = all.value[c];
      }
      return;
    }
#pragma unroll
    for (int c = 0; c < kUnitColumns; ++c) {
      to[c] = first + c < vocab ? logits[first + c] : -INFINITY;
    }
  }
};

}  // namespace train::kernels::cuda
