#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Single-thread instructions that C++ has no syntax for. The emulated device has its own file of
// this name, so this one runs only on a device.
namespace train::kernels::cuda {

/// `value`, with dependent expressions recomputed at each use: the compiler keeps no registers for
/// them around a loop.
__device__ inline int recomputed(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// 2^x to 2 ulps, as exp2f; 0 if the result is below the smallest normal number.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Base-2 logarithm, accurate to 2^-22 for x near 1.
__device__ inline float log_to_two(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp; 0 if the result is below the smallest normal number.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Nearest bf16 of both, ties to even, `low` in the lower half. Every NaN becomes the canonical
/// NaN.
__device__ inline std::uint32_t pack_pair(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// Block's dynamic shared memory, aligned to 1024 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(1024) float4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace train::kernels::cuda
