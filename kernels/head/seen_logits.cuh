#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "kernels/head/logit_row.cuh"

// A block's running maximum and sum of exponentials over a row of logits.
namespace train::kernels::cuda {

// exp(x) is 2^(x kLog2E), and sums are of 2^(x kLog2E - shift) with an integer shift: changing the
// shift changes only exponents, without rounding. kLog2E is 1.4e-8 off, the difference to the shift
// is rounded once, and power_of_two() has 2 ulps: together below 1e-6 of a term that is within
// e^-16 of the largest.
constexpr float kLog2E = 1.442695041F;

/// Smallest integer not below `largest` kLog2E. Finite for -Inf, so that 2^-Inf relative to it is
/// 0. Logits beyond 1e9 poison the row.
__device__ inline float shift_of(float largest) { return fmaxf(ceilf(largest * kLog2E), -FLT_MAX); }

/// exp(logit) / 2^shift.
__device__ inline float exponential(float logit, float shift) {
  return power_of_two(fmaf(logit, kLog2E, -shift));
}

/// 2^whole, exact; 0 below 2^-126. REQUIRES: an integer up to 0, -Inf or NaN.
__device__ inline float whole_power(float whole) {
  if (!(whole >= -126.0F)) {
    return isnan(whole) ? whole : 0.0F;
  }
  return __uint_as_float(static_cast<std::uint32_t>(127 + static_cast<int>(whole)) << 23U);
}

/// Sum of n values, neighbours first.
template <int n>
__device__ float sum_of_pairs(const float* values) {
  if constexpr (n == 1) {
    return *values;
  } else {
    return sum_of_pairs<n / 2>(values) + sum_of_pairs<n / 2>(values + n / 2);
  }
}

/// State of a row: the largest logit and its first index, NaN ignored, and the sum of exponentials,
/// which becomes NaN with a NaN.
struct SeenLogits {
  float largest = -INFINITY;
  std::int32_t index = INT32_MAX;
  float shift = -FLT_MAX;
  double sum = 0.0;
  double total = 0.0;  ///< Sum of the logits; for shaped rows only.

  /// Rescales the sum to another shift, not below the current one.
  __device__ void rise_to(float higher) {
    sum *= static_cast<double>(whole_power(shift - higher));
    shift = higher;
  }

  /// Adds a tile. Tiles come from the last to the first, so that on ties the last one added wins.
  template <bool aligned, bool shaped>
  __device__ void see(const LogitRow<aligned, shaped>& row, int tile,
                      const float (&values)[kTileColumns]) {
    float most = values[0];
#pragma unroll
    for (int i = 1; i < kTileColumns; ++i) {
      most = fmaxf(most, values[i]);
    }
    if (most >= largest) {
#pragma unroll
      for (int i = kTileColumns - 1; i >= 0; --i) {
        if (values[i] == most) {
          index = row.unit_of(tile, i / kUnitColumns) * kUnitColumns + i % kUnitColumns;
        }
      }
      largest = most;
      rise_to(shift_of(most));
    }
    // Sixteen terms in pairs: four fp32 roundings, 2.4e-7, as no term is negative.
    float terms[kTileColumns];
#pragma unroll
    for (int i = 0; i < kTileColumns; ++i) {
      terms[i] = exponential(values[i], shift);
    }
    sum += static_cast<double>(sum_of_pairs<kTileColumns>(terms));
    if constexpr (shaped) {
#pragma unroll
      for (int i = 0; i < kTileColumns; ++i) {
        const int column = row.unit_of(tile, i / kUnitColumns) * kUnitColumns + i % kUnitColumns;
        terms[i] = column < row.vocab ? values[i] : 0.0F;
      }
      total += static_cast<double>(sum_of_pairs<kTileColumns>(terms));
    }
  }
};

/// Reduces a thread's part of a row, from the last tile to the first; each tile is loaded while the
/// following one is reduced, and kept if there is room.
template <bool aligned, bool shaped>
__device__ SeenLogits see_row(const LogitRow<aligned, shaped>& row) {
  SeenLogits seen;
  float next[kTileColumns];
  row.template load<false>(row.tiles() - 1, next);
  for (int tile = row.tiles() - 1; tile >= 0; --tile) {
    float values[kTileColumns];
#pragma unroll
    for (int i = 0; i < kTileColumns; ++i) {
      values[i] = next[i];
    }
    if (tile > 0) {
      row.template load<false>(tile - 1, next);
    }
    row.shape_tile(tile, values);
    row.keep(tile, values);
    seen.see(row, tile, values);
  }
  return seen;
}

/// Sum over the threads of a block, on all of them.
__device__ inline double block_sum(double value) {
  __shared__ double sums[kMostWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const double of_warp = warp_sum(value);
  __syncthreads();  // All threads have read the previous sums.
  if (lane == 0) {
    sums[warp] = of_warp;
  }
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarpSize ? sums[lane] : 0.0);
}

/// Combines the states of a block's threads; all threads get the result. First the largest logit
/// (first index on ties), then the sums at its shift.
template <bool shaped>
__device__ SeenLogits fold_seen(SeenLogits seen) {
  __shared__ float largest[kMostWarps];
  __shared__ std::int32_t index[kMostWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool a_warp = lane < static_cast<int>(blockDim.x) / kWarpSize;
  const auto fold_largest = [](float& value, std::int32_t& at) {
    const float most = warp_max(value);
    at = warp_min(value == most ? at : INT32_MAX);
    value = most;
  };
  float value = seen.largest;
  std::int32_t at = seen.index;
  fold_largest(value, at);
  if (lane == 0) {
    largest[warp] = value;
    index[warp] = at;
  }
  __syncthreads();
  value = a_warp ? largest[lane] : -INFINITY;
  at = a_warp ? index[lane] : INT32_MAX;
  fold_largest(value, at);
  seen.rise_to(shift_of(value));
  seen.largest = value;
  seen.index = at;
  seen.sum = block_sum(seen.sum);
  if constexpr (shaped) {
    seen.total = block_sum(seen.total);
  }
  return seen;
}

constexpr double kLn2 = 0.6931471805599453;

/// log(sum of exp(logit)) of the row; NaN if no logit is above -Inf.
__device__ inline double log_sum_exp(const SeenLogits& seen) {
  const auto largest = static_cast<double>(seen.largest);
  // The shift differs from the largest logit.
  const double rest = static_cast<double>(seen.shift) - largest * static_cast<double>(kLog2E);
  return seen.largest == -INFINITY ? NAN : largest + (log(seen.sum) + kLn2 * rest);
}

/// log_sum_exp() in fp32: all threads need it for gradients, which are not summed.
__device__ inline float short_log_sum_exp(const SeenLogits& seen) {
  const float rest = fmaf(-seen.largest, kLog2E, seen.shift);
  const float log_sum = logf(static_cast<float>(seen.sum));
  return seen.largest == -INFINITY ? NAN
                                   : seen.largest + fmaf(static_cast<float>(kLn2), rest, log_sum);
}

}  // namespace train::kernels::cuda
