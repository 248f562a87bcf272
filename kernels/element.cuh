#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/bf16.cuh"
#include "kernels/dtype.hpp"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"

// Elements of either type: kernels are written once, compute in fp32, and round what they store.
namespace train::kernels::cuda {

/// A bf16 as it lies in memory.
struct Bf16 {
  std::uint16_t bits;
};

__device__ inline float value_of(float element) { return element; }
__device__ inline float value_of(Bf16 element) { return from_upper_half(element.bits); }

__device__ inline void set_value(float& element, float value) { element = value; }
__device__ inline void set_value(Bf16& element, float value) {
  element.bits = static_cast<std::uint16_t>(pack_pair(value, 0.0F));
}

/// Of neighbours.
template <class T, int n>
__device__ void set_values(T (&element)[n], const float (&value)[n]) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
    set_value(element[j], value[j]);
  }
}
template <int n>
requires(n % 2 == 0) __device__ void set_values(Bf16 (&element)[n], const float (&value)[n]) {
#pragma unroll
  for (int j = 0; j < n; j += 2) {
    const std::uint32_t both = pack_pair(value[j], value[j + 1]);
    element[j].bits = static_cast<std::uint16_t>(both);
    element[j + 1].bits = static_cast<std::uint16_t>(both >> 16U);
  }
}

/// Element i of memory that holds elements of type T.
template <class T>
__device__ float load(const void* data, std::int64_t i) {
  return value_of(static_cast<const T*>(data)[i]);
}
template <class T>
__device__ void store(void* data, std::int64_t i, float value) {
  set_value(static_cast<T*>(data)[i], value);
}

/// Calls with<T>() for the type of the elements.
template <class With>
void for_element_type(DType dtype, const With& with) {
  if (dtype == DType::bf16) {
    with.template operator()<Bf16>();
  } else {
    with.template operator()<float>();
  }
}

}  // namespace train::kernels::cuda
