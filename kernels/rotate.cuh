#pragma once

#include <cuda_runtime.h>

#include "kernels/element.cuh"

namespace train::kernels::cuda {

/// Writes to x the pair (x0, x1) rotated by the angle with these cosine and sine.
template <class T>
__device__ void rotate_pair(T* x, float x0, float x1, float cos, float sin) {
  set_value(x[0], x0 * cos - x1 * sin);
  set_value(x[1], x0 * sin + x1 * cos);
}

}  // namespace train::kernels::cuda
