#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/kinds.hpp"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

// Scores of a row of router logits by one warp, with the CPU's bits: an expert is chosen by its
// rounded score, so both devices choose alike only if they round alike. `lane` is the caller's
// place in the warp.
namespace train::kernels::cuda {

/// Partial sums of a row on the CPU: column c belongs to sum c % 16 (Floats16 of simd-inl.hpp).
constexpr int kRowParts = 16;
/// Columns whose sum is one of floats; those of longer rows are added in double (kExactRun).
constexpr int kRowRun = 4096;
constexpr int kMostRouterWarps = 8;

/// exp(x), bit by bit as the CPU's exp_of() (functions-inl.hpp).
__device__ inline float router_exp(float x) {
  constexpr float to_integer = 0x1.8p23F;
  const float within = fminf(fmaxf(x, -104.0F), 89.0F);
  const float shifted = fmaf(within, 0x1.715476p0F, to_integer);
  const float octaves = shifted - to_integer;
  const float r = fmaf(-octaves, 0x1.7f7d1cp-20F, fmaf(-octaves, 0x1.62e4p-1F, within));
  const float square = r * r;
  const float high = fmaf(r, 0x1.6b6e22p-10F, 0x1.122fc2p-7F);
  const float middle = fmaf(r, 0x1.555688p-5F, 0x1.5554a4p-3F);
  const float low = fmaf(r, fmaf(square, high, middle), 0.5F);
  const float rest = fmaf(square, low, r);
  const int whole =
      static_cast<int>(__float_as_uint(shifted)) - static_cast<int>(__float_as_uint(to_integer));
  const int half = whole >> 1;
  const auto power = [](int k) {
    return __uint_as_float(static_cast<std::uint32_t>(k + 127) << 23U);
  };
  const float scaled = (rest + 1.0F) * power(half);
  return isnan(x) ? x : scaled * power(whole - half);
}

__device__ inline bool is_sigmoid(RouterKind kind) {
  return kind == RouterKind::sigmoid || kind == RouterKind::sigmoid_normalised;
}

/// 1 / (1 + exp(-x)), bit by bit as the CPU's sigmoid() (simd-inl.hpp).
__device__ inline float router_score(float x) {
  const float e = router_exp(-fabsf(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

/// 1 / (1 + exp(-x)), rounded once. Choices do not depend on it.
__device__ inline float router_sigmoid(float x) {
  return static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(x))));
}

/// Largest logit and sum of exp(logit - largest). A NaN or +Inf among the logits makes `sum` NaN.
struct RouterSum {
  float largest;
  double sum;

  [[nodiscard]] __device__ float probability(float exponential) const {
    return exponential / static_cast<float>(sum);
  }
  /// log(sum of exp(logit)).
  [[nodiscard]] __device__ double log_sum_exp() const {
    return static_cast<double>(largest) + log(sum);
  }
};

/// Sum of value_of(e) over a row, on all lanes, in the CPU's order. Writes the values to shared
/// memory, if wanted, where all lanes see them on return.
template <class Value>
__device__ double sum_of_values(int experts, int lane, float* values, const Value& value_of) {
  double all = 0.0;
  for (int begin = 0; begin < experts; begin += kRowRun) {
    const int end = min(begin + kRowRun, experts);
    float sum = 0.0F;
    // Lane l has column l of every 32, so lanes l and l + 16 take turns in the sum of lane l.
    for (int first = begin; first < end; first += kWarpSize) {
      const int e = first + lane;
      const float value = e < end ? value_of(e) : 0.0F;
      if (e < end && values != nullptr) {
        values[e] = value;
      }
      sum += value;
      sum += __shfl_xor_sync(kAllLanes, value, kRowParts);
    }
    sum = __shfl_sync(kAllLanes, sum, lane % kRowParts);
    all += static_cast<double>(warp_sum<kRowParts>(sum));
  }
  __syncwarp();
  return all;
}

/// Sums exp(logit - largest) on all lanes, and writes them as sum_of_values() does.
__device__ inline RouterSum sum_of_row(const float* logits, int experts, int lane,
                                       float* exponentials = nullptr) {
  RouterSum row{-INFINITY, 0.0};
  for (int e = lane; e < experts; e += kWarpSize) {
    row.largest = fmaxf(row.largest, logits[e]);
  }
  row.largest = warp_max(row.largest);
  row.sum = sum_of_values(experts, lane, exponentials,
                          [&](int e) { return router_exp(logits[e] - row.largest); });
  return row;
}

/// Sums the sigmoids on all lanes, and writes them as sum_of_values() does: probability(s) is the
/// share that balancing takes.
__device__ inline RouterSum sum_of_sigmoids(const float* logits, int experts, int lane,
                                            float* sigmoids = nullptr) {
  return {0.0F,
          sum_of_values(experts, lane, sigmoids, [&](int e) { return router_score(logits[e]); })};
}

/// Grid of a kernel whose warps take one row each, with `floats` of shared memory per warp.
inline Grid router_grid(std::int64_t rows, std::int64_t floats) {
  const std::int64_t room = most_shared_bytes() / static_cast<std::int64_t>(sizeof(float)) / 2;
  const std::int64_t warps = std::clamp<std::int64_t>(room / floats, 1, kMostRouterWarps);
  return {.blocks = blocks_of(rows, warps),
          .threads = dim3(static_cast<unsigned>(warps * kWarpSize)),
          .shared_bytes = static_cast<std::size_t>(warps * floats) * sizeof(float)};
}

/// Row of this warp, its shared memory, and the caller's lane.
struct RouterPlace {
  int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kWarpSize) + warp;
};

}  // namespace train::kernels::cuda
