#pragma once

#include <cuda_runtime.h>

namespace train::kernels::cuda {

/// Rotates the pair at x by the angle with these cosine and sine, in place.
__device__ inline void rotate_pair(float* x, float x0, float x1, float cos, float sin) {
  x[0] = x0 * cos - x1 * sin;
  x[1] = x0 * sin + x1 * cos;
}

}  // namespace train::kernels::cuda
