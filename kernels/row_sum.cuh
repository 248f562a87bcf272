#pragma once

#include <cuda_runtime.h>

#include "kernels/launch.cuh"

// Sums of a row in double, in the order that the CPU's have: sixteen partial sums, column c in sum
// c % 16, then a tree over them.
namespace train::kernels::cuda {

constexpr int row_sum_lanes = 16;

/// The tree over the partial sums of row_sum_lanes neighbouring threads; the first one's result
/// counts. REQUIRES: the whole warp calls it.
__device__ inline double fold_row_sum(double sum) {
#pragma unroll
  for (int half = row_sum_lanes / 2; half > 0; half /= 2) {
    sum += __shfl_down_sync(all_lanes, sum, static_cast<unsigned>(half), row_sum_lanes);
  }
  return sum;
}

}  // namespace train::kernels::cuda
