#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/gemma.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view gemma2_keys() {
  return R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": null,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": true, "head_dim": 256,
    "attention_bias": false, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "layer_types": null, "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Gemma 2 (Gemma Team 2024): caps of scores and logits, a window on every other layer.
ModelSpec gemma2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = gemma_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const auto softcap = static_cast<float>(config.cap_if_any("attn_logit_softcapping"));
  const auto windows = config.layer_windows(sizes.layers, config.size_if_any("sliding_window"),
                                            [](std::int64_t layer) { return layer % 2 == 0; });
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    make_gemma_layer(config, sizes, layer);
    layer.attention.softcap = softcap;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

}  // namespace train::engine
