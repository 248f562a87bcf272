#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {
namespace {

/// Parts shared by Gemma 2 and 3: a scaled embedding tied to the head, gains of 1 + w, norms before
/// and behind both branches, attention's own scale.
ModelSpec gemma_model(ModelConfig& config, const DecoderSizes& sizes) {
  ModelSpec spec = decoder_model(config, sizes);
  const auto* other = config.find("hidden_act");
  if (other != nullptr && *other != *config.find("hidden_activation")) {
    config.pass_over("hidden_act (this family reads hidden_activation)");
  }
  // The scale is not rounded to the type of the weights: rounding belongs to a computation in that
  // type, while training and an fp32 export must compute the same function.
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding_dim)));
  spec.logit_softcap = static_cast<float>(config.cap_if_any("final_logit_softcapping"));
  spec.final_norm.plus_one = true;
  return spec;
}

void make_gemma_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer) {
  layer.attention_norms.pre = rms_norm("input_layernorm", sizes.eps, true);
  layer.attention_norms.post = rms_norm("post_attention_layernorm", sizes.eps, true);
  layer.mlp_norms.pre = rms_norm("pre_feedforward_layernorm", sizes.eps, true);
  layer.mlp_norms.post = rms_norm("post_feedforward_layernorm", sizes.eps, true);
  layer.attention.norm.plus_one = true;
  const double scalar = config.real("query_pre_attn_scalar");
  layer.attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  const bool bias = config.flag("attention_bias");
  layer.attention.projection_bias = bias;
  layer.attention.output_bias = bias;
}

}  // namespace

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
