#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"

// One row of logits as a block goes through it. The threads have units of neighbouring columns in
// turns, two of each a tile, wherever the row lies: so the order of sums is the number of columns'.
namespace train::kernels::cuda {

constexpr int unit_columns = 8;
constexpr int tile_units = 2;  // Of a thread: 64 bytes on their way.
constexpr int tile_columns = tile_units * unit_columns;

/// The logits of a row, of which the last units are kept in shared memory once they were read.
/// `aligned`: the row begins at a multiple of 16 bytes; else it is read one by one.
template <bool aligned>
struct LogitRow {
  const float* logits;
  int vocab, units;
  int first_kept;  ///< `units` where none is.
  float* kept;     ///< First halves of units, then second ones: what a warp reads is contiguous.

  [[nodiscard]] __device__ int tiles() const {
    const int of_tile = tile_units * static_cast<int>(blockDim.x);
    return (units + of_tile - 1) / of_tile;
  }
  /// The unit `j` of this thread in a tile.
  [[nodiscard]] __device__ int unit_of(int tile, int j) const {
    return (tile * tile_units + j) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  }
  [[nodiscard]] __device__ bool whole(int unit) const { return (unit + 1) * unit_columns <= vocab; }

  /// This thread's logits of a tile; -Inf beyond the row.
  template <bool again>
  __device__ void load(int tile, float (&values)[tile_columns]) const {
#pragma unroll
    for (int j = 0; j < tile_units; ++j) {
      const int unit = unit_of(tile, j);
      float* to = values + j * unit_columns;
      if (again && unit >= first_kept && unit < units) {
        from_shared(unit - first_kept, to);
      } else {
        from_memory(unit, to);
      }
    }
  }
  /// Keeps what load() has given, where there is room. A thread reads what it has kept itself.
  __device__ void keep(int tile, const float (&values)[tile_columns]) const {
    constexpr int half = unit_columns / 2;
#pragma unroll
    for (int j = 0; j < tile_units; ++j) {
      const int place = unit_of(tile, j) - first_kept;
      if (place >= 0 && place < units - first_kept) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          Several<float, half> chunk;
#pragma unroll
          for (int c = 0; c < half; ++c) {
            chunk.value[c] = values[j * unit_columns + part * half + c];
          }
          chunk.store(kept, chunk_offset(place, part));
        }
      }
    }
  }

 private:
  [[nodiscard]] __device__ int chunk_offset(int place, int part) const {
    return (part * (units - first_kept) + place) * (unit_columns / 2);
  }
  __device__ void from_shared(int place, float* to) const {
    constexpr int half = unit_columns / 2;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const Several<float, half> chunk(kept, chunk_offset(place, part));
#pragma unroll
      for (int c = 0; c < half; ++c) {
        to[part * half + c] = chunk.value[c];
      }
    }
  }
  __device__ void from_memory(int unit, float* to) const {
    const int first = unit * unit_columns;
    if (aligned && whole(unit)) {
      const Several<float, unit_columns> all(logits, first);
#pragma unroll
      for (int c = 0; c < unit_columns; ++c) {
        to[c] = all.value[c];
      }
      return;
    }
#pragma unroll
    for (int c = 0; c < unit_columns; ++c) {
      to[c] = first + c < vocab ? logits[first + c] : -INFINITY;
    }
  }
};

// exp(x) is 2^(x log2_e), and the sums are of 2^(x log2_e - shift) with a whole number as shift:
// another shift is another exponent, and rounds nothing. log2_e is 1.4e-8 off, the difference to
// the shift is rounded once and power_of_two() has 2 ulps: together below 1e-6 of a term that is
// within e^-16 of the largest.
constexpr float log2_e = 1.442695041F;

/// The least whole number that is not below `largest` log2_e. A finite one for -Inf, against which
/// 2^-Inf is 0. Logits beyond 1e9 poison the row.
__device__ inline float shift_of(float largest) { return fmaxf(ceilf(largest * log2_e), -FLT_MAX); }

/// exp(logit), divided by 2^shift.
__device__ inline float exponential(float logit, float shift) {
  return power_of_two(fmaf(logit, log2_e, -shift));
}

/// 2^whole bitwise; 0 below 2^-126. REQUIRES: a whole number up to 0, -Inf or NaN.
__device__ inline float whole_power(float whole) {
  if (!(whole >= -126.0F)) {
    return isnan(whole) ? whole : 0.0F;
  }
  return __uint_as_float(static_cast<std::uint32_t>(127 + static_cast<int>(whole)) << 23U);
}

/// The sum of n values, neighbours first.
template <int n>
__device__ float sum_of_pairs(const float* values) {
  if constexpr (n == 1) {
    return *values;
  } else {
    return sum_of_pairs<n / 2>(values) + sum_of_pairs<n / 2>(values + n / 2);
  }
}

/// What was seen of a row: the largest logit and where it comes first, NaN left out, and the sum of
/// exponentials, which a NaN makes NaN.
struct SeenLogits {
  float largest = -INFINITY;
  std::int32_t index = INT32_MAX;
  float shift = -FLT_MAX;
  double sum = 0.0;

  /// Brings the sum to another shift, which is not below the one that it has.
  __device__ void rise_to(float higher) {
    sum *= static_cast<double>(whole_power(shift - higher));
    shift = higher;
  }

  /// Sees a tile. Tiles come from the last to the first, so that of equals the last seen counts.
  template <bool aligned>
  __device__ void see(const LogitRow<aligned>& row, int tile, const float (&values)[tile_columns]) {
    float most = values[0];
#pragma unroll
    for (int i = 1; i < tile_columns; ++i) {
      most = fmaxf(most, values[i]);
    }
    if (most >= largest) {
#pragma unroll
      for (int i = tile_columns - 1; i >= 0; --i) {
        if (values[i] == most) {
          index = row.unit_of(tile, i / unit_columns) * unit_columns + i % unit_columns;
        }
      }
      largest = most;
      rise_to(shift_of(most));
    }
    // Sixteen terms in pairs: four roundings of fp32, 2.4e-7, as no term is negative.
    float terms[tile_columns];
#pragma unroll
    for (int i = 0; i < tile_columns; ++i) {
      terms[i] = exponential(values[i], shift);
    }
    sum += static_cast<double>(sum_of_pairs<tile_columns>(terms));
  }
};

}  // namespace train::kernels::cuda
