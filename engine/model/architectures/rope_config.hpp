#pragma once

#include "engine/model/architectures/model_config.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Where a rope's settings are, for what they do not say themselves.
struct RopeRequest {
  std::int64_t head_dim = 0;
  double theta = 10000.0;            ///< Where no key has it.
  double rotary_share = 1.0;         ///< Of a head, where no key has it.
  const char* layer_type = nullptr;  ///< Key below rope_parameters that has this rope's settings.
  bool scaled = true;                ///< Take scaling at all (rope_scaling).
  const char* theta_key = "rope_theta";  ///< Or rotary_emb_base, its name in GPT-NeoX.
};

/// A rope of published weights: pairs by halves, frequencies in single precision, and of the kinds
/// default, linear, llama3 (Llama 3.1), yarn (Peng et al. 2023) and longrope (Ding et al. 2024, its
/// factors chosen by the run's sequence length). Both dialects: rope_parameters, or rope_theta with
/// rope_scaling. Other kinds are refused in `config`.
[[nodiscard]] RopeSpec rope_of(ModelConfig& config, const RopeRequest& request);

/// The same without any scaling.
[[nodiscard]] RopeSpec plain_rope_of(ModelConfig& config, const RopeRequest& request);

}  // namespace train::engine
