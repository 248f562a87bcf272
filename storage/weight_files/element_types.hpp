#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace train::storage {

/// What weights are stored as.
enum class WeightType : std::uint8_t { f32, bf16, f16 };

[[nodiscard]] std::size_t size_of(WeightType type);
/// "F32", "BF16", "F16": as safetensors files name them.
[[nodiscard]] const char* stored_name(WeightType type);
/// "float32", "bfloat16", "float16": as config.json names them.
[[nodiscard]] const char* config_name(WeightType type);
/// Of stored_name()'s; nothing for others.
[[nodiscard]] std::optional<WeightType> weight_type(std::string_view stored_name);

/// Exact. REQUIRES: `in` holds out.size() elements of `type`, in the machine's byte order.
void to_floats(WeightType type, std::span<const std::byte> in, std::span<float> out);

/// To the nearest, ties to even; a NaN stays one. What to_floats() gave comes back bit for bit,
/// quiet NaNs too. Returns whether every finite value stayed finite. REQUIRES: sizes as above.
[[nodiscard]] bool from_floats(WeightType type, std::span<const float> in,
                               std::span<std::byte> out);

}  // namespace train::storage
