#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/launch.cuh"

// Sums and maxima over threads, in a fixed order.
namespace train::kernels::cuda {

/// Sum over `lanes` neighbouring threads of a warp (a power of two), on all of them. REQUIRES: the
/// whole warp calls it.
template <int lanes = kWarpSize, class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int lanes = kWarpSize>
__device__ float warp_max(float value) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

template <int lanes = kWarpSize>
__device__ std::int32_t warp_min(std::int32_t value) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = min(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

/// Reduces `values[threads]` of shared memory into values[0] by halves. Every thread of the block
/// calls it with its stored value; on return all see the result. REQUIRES: threads is a power of
/// two and the size of the block.
template <class T, class Combine>
__device__ void fold_block(T* values, int threads, const Combine& combine) {
  const int me = static_cast<int>(threadIdx.x);
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (me < half) {
      values[me] = combine(values[me], values[me + half]);
    }
    __syncthreads();
  }
}

struct Add {
  template <class T>
  __device__ T operator()(T left, T right) const {
    return left + right;
  }
};

// Row sums in double in the CPU's order: sixteen partial sums, column c in sum c % 16, then a tree
// over them.

constexpr int kRowSumLanes = 16;

/// Tree over the partial sums of kRowSumLanes neighbouring threads; the result is valid in the
/// first one. REQUIRES: the whole warp calls it.
__device__ inline double fold_row_sum(double sum) {
#pragma unroll
  for (int half = kRowSumLanes / 2; half > 0; half /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, static_cast<unsigned>(half), kRowSumLanes);
  }
  return sum;
}

}  // namespace train::kernels::cuda
