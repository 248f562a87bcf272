#pragma once

#include "engine/model/config_json/rope_settings.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Yarn's factor of scores (Peng et al. 2023): 0.1 mscale ln(scale) + 1, and 1 up to a scale of 1.
[[nodiscard]] double yarn_gain(double scale, double mscale);

/// The ropes of published weights into ModelSpec::ropes, and the keys that say them into rope_keys:
/// pairs by halves, frequencies in single precision, and of the kinds default, linear, llama3
/// (Llama 3.1), yarn (Peng et al. 2023) and longrope (Ding et al. 2024, its factors chosen by the
/// run's sequence length). By layer: first that of layers that see all, then that of windowed ones.
void add_ropes(ModelConfig& config, const RopeFamily& family, std::int64_t head_dim,
               ModelSpec& spec);

}  // namespace train::engine
