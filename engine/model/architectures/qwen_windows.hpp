#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/architectures/model_config.hpp"

namespace train::engine {

/// The window of each layer of a Qwen: none without use_sliding_window; else those that layer_types
/// names, or from max_window_layers on.
[[nodiscard]] inline std::vector<std::int64_t> qwen_windows(ModelConfig& config,
                                                            std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  if (!config.flag_or({"use_sliding_window"}, false)) {
    return windows;
  }
  const std::int64_t window = config.size_or({"sliding_window"}, 4096);
  const auto first = static_cast<std::int64_t>(config.real_or({"max_window_layers"}, 28.0));
  const bool listed = config.find({"layer_types"}) != nullptr;
  const std::vector<bool> windowed =
      config.windowed_layers(layers, [](std::int64_t) { return true; });
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool here = listed ? windowed[i] : static_cast<std::int64_t>(i) >= first;
    windows[i] = here ? window : 0;
  }
  return windows;
}

}  // namespace train::engine
