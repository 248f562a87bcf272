#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/bf16.cuh"
#include "tests/cuda_emulation/block.hpp"

// In the place of the product's header of this name, whose instructions only a device has.
namespace train::kernels::cuda {

inline int recomputed(int value) { return value; }

// Below the smallest normal number it is 0, as the device's.
inline float power_of_two(float x) { return x < -126.0F ? 0.0F : std::exp2(x); }
inline float log_to_two(float x) { return std::log2(x); }
inline float reciprocal(float x) { return std::fabs(x) > 0x1p126F ? 0.0F : 1.0F / x; }

inline std::uint32_t pack_pair(float low, float high) {
  const auto half = [](float value) -> std::uint32_t {
    return std::isnan(value) ? 0x7fffU : upper_half(value);
  };
  return half(low) | half(high) << 16U;
}

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(cuda_emulation::dynamic_shared_memory());
}

}  // namespace train::kernels::cuda
