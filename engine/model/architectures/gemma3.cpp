#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/gemma.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view gemma3_keys() {
  return R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": null,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": true, "head_dim": 256,
    "attention_bias": false, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "layer_types": null, "sliding_window_pattern": 6,
    "final_logit_softcapping": null, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
    "rope_parameters": null, "rope_scaling": null})";
}

/// Gemma 3, its text half (Gemma Team 2025): norms of queries and keys, five windowed layers with a
/// rope of their own to one that sees all.
ModelSpec gemma3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = gemma_model(config, sizes);
  add_ropes(config, {.by_layer = true, .local_theta_key = "rope_local_base_freq"}, sizes.head_dim,
            spec);
  const std::int64_t pattern = config.size("sliding_window_pattern");
  const auto windows =
      config.layer_windows(sizes.layers, config.size_if_any("sliding_window"),
                           [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    make_gemma_layer(config, sizes, layer);
    layer.attention.head_norm = HeadNorm::per_head;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
    layer.attention.rope = layer.attention.window > 0 ? 1 : 0;
  });
  return spec;
}

}  // namespace train::engine
