#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/qwen_windows.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Qwen3, dense (Yang et al. 2025): norms of queries and keys per head, before the rotation.
ModelSpec qwen3_model(ModelConfig& config) {
  DecoderSizes sizes = decoder_sizes(config, 1e-6);
  sizes.head_dim = config.size_or({"head_dim"}, 128);
  ModelSpec spec = decoder_model(config, sizes, false);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  const bool bias = config.flag_or({"attention_bias"}, false);
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t index) {
    layer.attention.head_norm = HeadNorm::per_head;
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

}  // namespace train::engine
