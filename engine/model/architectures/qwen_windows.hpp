#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/config_json/model_config.hpp"

namespace train::engine {

/// The window of each layer of a Qwen: none without use_sliding_window; else those that layer_types
/// names, or from max_window_layers on.
[[nodiscard]] inline std::vector<std::int64_t> qwen_windows(ModelConfig& config,
                                                            std::int64_t layers) {
  auto window = config.size_if_any("sliding_window");
  if (!config.flag("use_sliding_window")) {
    window.reset();
  }
  const double first = config.real("max_window_layers");
  return config.layer_windows(layers, window, [&](std::int64_t layer) {
    return window.has_value() && static_cast<double>(layer) >= first;
  });
}

}  // namespace train::engine
