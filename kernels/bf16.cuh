#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace train::kernels::cuda {

/// The bits of `value`, rounded so that the upper half is the nearest bfloat16, ties to even.
/// REQUIRES: not NaN.
__device__ inline std::uint32_t rounded_to_upper_half(std::uint32_t bits) {
  return bits + 0x7fffU + ((bits >> 16U) & 1U);
}

/// Nearest bf16, as fp32. NaN is unchanged.
__device__ inline float rounded_to_bf16(float value) {
  const std::uint32_t rounded = rounded_to_upper_half(__float_as_uint(value)) & 0xffff0000U;
  return isnan(value) ? value : __uint_as_float(rounded);
}

/// Bits of the nearest bf16. NaN stays NaN (quiet).
__device__ inline std::uint16_t upper_half(float value) {
  constexpr std::uint32_t quiet_bit = 0x00400000U;
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t rounded = isnan(value) ? bits | quiet_bit : rounded_to_upper_half(bits);
  return static_cast<std::uint16_t>(rounded >> 16U);
}

/// Bf16 with these bits, exactly.
__device__ inline float from_upper_half(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace train::kernels::cuda
