#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/models/gguf_keys.hpp"

namespace train::checkpoint {

/// Tensors that hold RoPE settings, not weights.
inline constexpr std::array<std::string_view, 3> kGgufRopeTensors = {
    "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"};

/// Parameters of Llama 3.1's rule besides the factor.
struct Llama3Rule {
  double context, low, high;
};
/// Divisor of each of `count` frequencies by that rule, as llama.cpp's converter writes them.
[[nodiscard]] std::vector<float> llama3_divisors(const Llama3Rule& rule, double factor,
                                                 double theta, std::size_t count);

/// Adds rope_theta, partial_rotary_factor and rope_scaling to a config.json, as in the published
/// model: from the keys "rope.*", and from the tensors of frequency divisors (Llama 3.1's, whose
/// three parameters are recovered if they are common ones, and longrope's). Mistakes go to `keys`.
/// Errors: those of GgufFile::read_fp32. Blocks on the disk.
Status add_gguf_rope(GgufKeys& keys, nlohmann::ordered_json& config);

}  // namespace train::checkpoint
