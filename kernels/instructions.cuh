#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Instructions of one thread that C++ has no words for. The emulated device has its own file of
// this name, so what is written here runs on a device alone.
namespace train::kernels::cuda {

/// `value`, but what follows from it is computed where it is used: the compiler keeps no registers
/// for it around a loop.
__device__ inline int recomputed(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// 2^x to 2 ulps, as exp2f; 0 where that is below the smallest normal number.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The logarithm to the base 2, good to 2^-22 where x is near 1.
__device__ inline float log_to_two(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp; 0 where that is below the smallest normal number.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The nearest bf16 of both, ties to even, `low` in the lower half. NaN becomes one and the same
/// NaN.
__device__ inline std::uint32_t pack_pair(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// The block's dynamic shared memory, aligned to 1024 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(1024) float4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace train::kernels::cuda
