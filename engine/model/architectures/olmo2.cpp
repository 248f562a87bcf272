#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/olmo.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

void make_olmo_layer(ModelConfig& config, const DecoderSizes& sizes, LayerSpec& layer) {
  layer.attention_norms = {.post = rms_norm("post_attention_layernorm", sizes.eps)};
  layer.mlp_norms = {.post = rms_norm("post_feedforward_layernorm", sizes.eps)};
  layer.attention.head_norm = HeadNorm::whole;
  const bool bias = config.flag_or({"attention_bias"}, false);
  layer.attention.projection_bias = bias;
  layer.attention.output_bias = bias;
}

/// OLMo 2 (Team OLMo 2024): norms behind the branches alone, and of all queries and keys at once.
ModelSpec olmo2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config, 1e-5);
  ModelSpec spec = decoder_model(config, sizes, false);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t) {
    make_olmo_layer(config, sizes, layer);
  });
  return spec;
}

}  // namespace train::engine
