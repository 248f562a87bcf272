#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/bf16.cuh"
#include "kernels/dtype.hpp"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"

// Elements of either type: kernels are written once, compute in fp32, and round on store.
namespace train::kernels::cuda {

/// Bf16 as stored in memory.
struct Bf16 {
  std::uint16_t bits;
};

__device__ inline float value_of(float element) { return element; }
__device__ inline float value_of(Bf16 element) { return from_upper_half(element.bits); }

__device__ inline void set_value(float& element, float value) { element = value; }
__device__ inline void set_value(Bf16& element, float value) {
  element.bits = static_cast<std::uint16_t>(pack_pair(value, 0.0F));
}

/// Array of neighbouring elements.
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

/// Element i of memory with elements of type T.
template <class T>
__device__ float load(const void* data, std::int64_t i) {
  return value_of(static_cast<const T*>(data)[i]);
}
template <class T>
__device__ void store(void* data, std::int64_t i, float value) {
  set_value(static_cast<T*>(data)[i], value);
}

/// Calls with<T>() for the element type.
template <class With>
void for_element_type(DType dtype, const With& with) {
  if (dtype == DType::bf16) {
    with.template operator()<Bf16>();
  } else {
    with.template operator()<float>();
  }
}

// Elementwise kernels that move 16 bytes per thread at once: several neighbours, each computed as
// if alone, so the bits do not depend on their number.

constexpr int kVectorBytes = 16;

/// Loads `n` neighbouring elements as floats. Aligned to 16 bytes if n > 1.
template <class T, int n>
struct Several {
  struct alignas(n == 1 ? alignof(T) : kVectorBytes) Stored {
    T element[n];
  };
  static_assert(n == 1 || n * sizeof(T) % kVectorBytes == 0);
  float value[n];

  __device__ Several() {}
  __device__ Several(const void* data, std::int64_t i) {
    const Stored stored = *reinterpret_cast<const Stored*>(static_cast<const T*>(data) + i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      value[j] = value_of(stored.element[j]);
    }
  }
  __device__ void store(void* data, std::int64_t i) const {
    Stored stored;
    set_values(stored.element, value);
    *reinterpret_cast<Stored*>(static_cast<T*>(data) + i) = stored;
  }
};

/// Starts a sum of neighbours.
template <int n>
__device__ Several<float, n> zeros() {
  Several<float, n> sum;
#pragma unroll
  for (int j = 0; j < n; ++j) {
    sum.value[j] = 0.0F;
  }
  return sum;
}

template <int n, class Body>
__global__ void __launch_bounds__(kBlockThreads) several_kernel(std::int64_t count, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t whole = count / n * n;
  for (std::int64_t i = thread_index() * n; i < whole; i += step * n) {
    body.template run<n>(i);
  }
  if constexpr (n > 1) {
    for (std::int64_t i = whole + thread_index(); i < count; i += step) {
      body.template run<1>(i);
    }
  }
}

/// True if all pointers can be accessed 16 bytes at a time, from the first element on.
template <class... Pointers>
__host__ __device__ bool aligned_to_vectors(const Pointers*... data) {
  return ((reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0) && ...);
}

/// Calls body.run<n>(i) for every n elements [i, i + n), and body.run<1>(i) for the rest; one by
/// one unless all are `aligned`.
template <int n, class Body>
void launch_several(CudaStream& stream, std::int64_t count, bool aligned, const Body& body) {
  constexpr std::int64_t most_blocks = 1 << 16;
  const std::int64_t items = aligned ? divide_up(count, n) : count;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(
                      std::min(most_blocks, divide_up(items, kBlockThreads))))};
  if (aligned) {
    launch(stream, several_kernel<n, Body>, grid, count, body);
  } else {
    launch(stream, several_kernel<1, Body>, grid, count, body);
  }
}

/// launch_several() with a body made of `params` for the element type: 8 of bf16, 4 of fp32.
template <template <class> class Body, class Params>
void launch_typed_several(CudaStream& stream, std::int64_t count, bool aligned,
                          const Params& params) {
  for_element_type(params.dtype, [&]<class T>() {
    launch_several<kVectorBytes / sizeof(T)>(stream, count, aligned, Body<T>{params});
  });
}

}  // namespace train::kernels::cuda
