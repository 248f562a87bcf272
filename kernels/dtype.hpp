#pragma once

#include <cstddef>
#include <cstdint>

namespace train::kernels {

/// Element type of activations and compute weights. Statistics, losses and weight gradients are
/// f32.
enum class DType : std::uint8_t { f32, bf16 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace train::kernels
