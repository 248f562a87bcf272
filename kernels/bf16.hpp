#pragma once

#include <bit>
#include <cstdint>

// bf16 on the host, one value at a time.
namespace train::kernels::cpu {

inline constexpr std::uint32_t magnitude_mask = 0x7fffffffU;
inline constexpr std::uint32_t infinity_bits = 0x7f800000U;
inline constexpr std::uint32_t quiet_bit = 0x00400000U;
inline constexpr std::uint32_t below_half = 0x7fffU;  // Of the half that is dropped.

/// The nearest bf16, ties to even. NaN stays NaN, and quiet.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & magnitude_mask) > infinity_bits;
  const std::uint32_t rounded = nan ? bits | quiet_bit : bits + below_half + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>(rounded >> 16U);
}

inline float from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

}  // namespace train::kernels::cpu
