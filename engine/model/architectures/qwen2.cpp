#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/qwen_windows.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values alone.
ModelSpec qwen2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config, 1e-6);
  ModelSpec spec = decoder_model(config, sizes, false);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t index) {
    layer.attention.projection_bias = true;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

}  // namespace train::engine
