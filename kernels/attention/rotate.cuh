#pragma once

#include <cuda_runtime.h>

namespace train::kernels::cuda {

/// Rotates the pair (x0, x1) by the angle with these cosine and sine.
__device__ inline void rotate(float& x0, float& x1, float cos, float sin) {
  const float first = x0 * cos - x1 * sin;
  x1 = x0 * sin + x1 * cos;
  x0 = first;
}

}  // namespace train::kernels::cuda
