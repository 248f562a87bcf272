#pragma once

#include <cuda_runtime.h>

// Functions of gates and of steps, as every kernel of this folder computes them.
namespace train::kernels::cuda {

__device__ inline float sigmoid_of(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ inline float softplus_of(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

}  // namespace train::kernels::cuda
