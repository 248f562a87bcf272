#include "storage/weight_files/element_types.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.hpp"

namespace train::storage {
namespace {

struct TypeNames {
  WeightType type;
  const char* stored;
  const char* config;
  std::size_t size;
};

constexpr std::array kTypes = {TypeNames{WeightType::f32, "F32", "float32", 4},
                               TypeNames{WeightType::bf16, "BF16", "bfloat16", 2},
                               TypeNames{WeightType::f16, "F16", "float16", 2}};

const TypeNames& names_of(WeightType type) { return kTypes.at(static_cast<std::size_t>(type)); }

float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1FU) {  // Infinite or NaN.
    return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
  }
  if (exponent == 0) {  // Subnormal: fraction * 2^-24.
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // Quiet NaN with the upper bits of its payload.
    const std::uint32_t payload = (magnitude >> 13U) & 0x3FFU;
    return static_cast<std::uint16_t>(sign | 0x7C00U | (payload == 0 ? 0x200U : payload));
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // Less than 2^-14: a multiple of 2^-24, or zero.
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13U));
}

std::uint16_t to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    const std::uint32_t upper = bits >> 16U;
    return static_cast<std::uint16_t>((upper & 0x7FU) == 0 ? upper | 0x40U : upper);
  }
  const std::uint32_t odd = (bits >> 16U) & 1U;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + odd) >> 16U);
}

/// Rounds all of `in`; false if a finite value became infinite.
template <class Round>
bool round_all(std::span<const float> in, std::span<std::byte> out, std::uint16_t infinity,
               const Round& round) {
  bool finite = true;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint16_t value = round(in[i]);
    finite = finite && ((value & 0x7FFFU) != infinity || std::isinf(in[i]));
    std::memcpy(out.data() + 2 * i, &value, sizeof(value));
  }
  return finite;
}

template <class Widen>
void widen_all(std::span<const std::byte> in, std::span<float> out, const Widen& widen) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in.data() + 2 * i, sizeof(bits));
    out[i] = widen(bits);
  }
}

}  // namespace

std::size_t size_of(WeightType type) { return names_of(type).size; }
const char* stored_name(WeightType type) { return names_of(type).stored; }
const char* config_name(WeightType type) { return names_of(type).config; }

std::optional<WeightType> weight_type(std::string_view stored_name) {
  for (const TypeNames& names : kTypes) {
    if (stored_name == names.stored) {
      return names.type;
    }
  }
  return std::nullopt;
}

void to_floats(WeightType type, std::span<const std::byte> in, std::span<float> out) {
  TRAIN_CHECK(in.size() == out.size() * size_of(type));
  if (type == WeightType::f32) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  // One loop per type: that of bf16 vectorises, and is as fast as memory.
  if (type == WeightType::bf16) {
    widen_all(in, out, [](std::uint16_t bits) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    });
  } else {
    widen_all(in, out, from_half);
  }
}

bool from_floats(WeightType type, std::span<const float> in, std::span<std::byte> out) {
  TRAIN_CHECK(out.size() == in.size() * size_of(type));
  switch (type) {
    case WeightType::f32:
      std::memcpy(out.data(), in.data(), out.size());
      return true;
    case WeightType::bf16:
      return round_all(in, out, 0x7F80U, to_bfloat);
    case WeightType::f16:
      break;
  }
  return round_all(in, out, 0x7C00U, to_half);
}

}  // namespace train::storage
