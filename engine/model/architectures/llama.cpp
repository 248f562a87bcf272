#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Llama 1 to 3 (Touvron et al. 2023), and all that took its form: SmolLM2, TinyLlama, Yi.
ModelSpec llama_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config, 1e-6);
  ModelSpec spec = decoder_model(config, sizes, false);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  const bool attention_bias = config.flag_or({"attention_bias"}, false);
  const bool mlp_bias = config.flag_or({"mlp_bias"}, false);
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t) {
    layer.attention.projection_bias = attention_bias;
    layer.attention.output_bias = attention_bias;
    layer.mlp.bias = mlp_bias;
  });
  return spec;
}

/// Mistral 7B (Jiang et al. 2023): Llama with a window on every layer, if any.
ModelSpec mistral_model(ModelConfig& config) {
  ModelSpec spec = llama_model(config);
  const std::int64_t window = config.size_or({"sliding_window"}, 0);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.window = window;
  }
  return spec;
}

}  // namespace train::engine
