#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace train::storage {

/// Storage type of weights.
enum class WeightType : std::uint8_t { f32, bf16, f16 };

[[nodiscard]] std::size_t size_of(WeightType type);
/// Name in safetensors files: "F32", "BF16", "F16".
[[nodiscard]] const char* stored_name(WeightType type);
/// Name in config.json: "float32", "bfloat16", "float16".
[[nodiscard]] const char* config_name(WeightType type);
/// Type with this stored_name(); nullopt for others.
[[nodiscard]] std::optional<WeightType> weight_type(std::string_view stored_name);

/// Exact conversion. REQUIRES: `in` holds out.size() elements of `type`, in the machine's byte
/// order.
void to_floats(WeightType type, std::span<const std::byte> in, std::span<float> out);

/// Rounds to nearest, ties to even; NaN stays NaN. Values from to_floats() are restored bit for
/// bit, quiet NaNs included. Returns true if every finite value stayed finite. REQUIRES: sizes as
/// above.
[[nodiscard]] bool from_floats(WeightType type, std::span<const float> in,
                               std::span<std::byte> out);

}  // namespace train::storage
