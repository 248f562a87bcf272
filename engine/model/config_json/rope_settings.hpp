#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/config_json/model_config.hpp"

namespace train::engine {

/// Keys in which a family's configuration class looks for the settings of its ropes.
struct RopeFamily {
  const char* theta_key = "rope_theta";
  const char* share_key = "partial_rotary_factor";
  /// Layers that see all and windowed ones have ropes of their own, the parts full_attention and
  /// sliding_attention of rope_parameters.
  bool by_layer = false;
  const char* local_theta_key =
      nullptr;                  ///< by_layer: of windowed layers; else theta_key's default.
  bool partial = false;         ///< A part of each head may turn.
  bool longrope_alone = false;  ///< Phi-3: "su" and "yarn" are its older names.
};

/// The settings of one rope as `rope_parameters` of a config.json has them, complete: rope_type,
/// rope_theta, partial_rotary_factor where a part of a head may turn, and what the kind needs.
using RopeSettings = nlohmann::ordered_json;

/// Settings of the family's one rope, or of full_attention and sliding_attention. Merges both
/// dialects as transformers 5 does: rope_parameters, and rope_theta with rope_scaling, which takes
/// precedence. Refuses in `config` what transformers cannot read, and kinds unknown here.
[[nodiscard]] std::vector<RopeSettings> read_rope_settings(ModelConfig& config,
                                                           const RopeFamily& family);

/// The keys of a config.json that say `settings`, a JSON object: rope_parameters, and the older
/// dialect where it can say the same.
[[nodiscard]] std::string rope_keys_of(const std::vector<RopeSettings>& settings,
                                       const RopeFamily& family);

/// Every key that says something about ropes, in any family and either dialect.
[[nodiscard]] const std::vector<std::string>& all_rope_keys();

}  // namespace train::engine
