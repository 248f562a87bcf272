#include <fmt/format.h>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {
namespace {

/// Fills in the parts of a layer that OLMo 2 and 3 share.
void make_olmo_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer) {
  layer.attention_norms = {.post = rms_norm("post_attention_layernorm", sizes.eps)};
  layer.mlp_norms = {.post = rms_norm("post_feedforward_layernorm", sizes.eps)};
  layer.attention.head_norm = HeadNorm::whole;
  const bool bias = config.flag("attention_bias");
  layer.attention.projection_bias = bias;
  layer.attention.output_bias = bias;
}

}  // namespace

std::string_view olmo2_keys() {
  return R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": null,
    "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null,
    "attention_bias": false,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// OLMo 2 (Team OLMo 2024): norms behind the branches alone, and of all queries and keys at once.
ModelSpec olmo2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t) {
    make_olmo_layer(config, sizes, layer);
  });
  return spec;
}

std::string_view olmo3_keys() {
  return R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": null,
    "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null,
    "attention_bias": false, "sliding_window": 4096, "layer_types": null,
    "rope_theta": 500000.0,
    "rope_parameters": null, "rope_scaling": null})";
}

/// OLMo 3 (Team OLMo 2025): OLMo 2 with windows on three layers of four, whose ropes are not
/// scaled. rope_theta is of layers that see all: windowed ones have theirs in rope_parameters
/// alone.
ModelSpec olmo3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {.by_layer = true}, sizes.head_dim, spec);
  const auto windows =
      config.layer_windows(sizes.layers, config.size_if_any("sliding_window"),
                           [](std::int64_t layer) { return (layer + 1) % 4 != 0; });
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    make_olmo_layer(config, sizes, layer);
    layer.attention.window = windows[static_cast<std::size_t>(index)];
    layer.attention.rope = layer.attention.window > 0 ? 1 : 0;
  });
  return spec;
}

std::string_view olmoe_keys() {
  return R"({"vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": null,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null,
    "attention_bias": false, "clip_qkv": null,
    "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
    "output_router_logits": false, "router_aux_loss_coef": 0.01,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// OLMoE 1B-7B (Muennighoff et al. 2024): norms before the branches, and of all queries and keys at
/// once.
ModelSpec olmoe_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  ExpertsSpec experts = read_experts(config, "num_experts", "num_local_experts");
  name_experts(experts);
  experts.hidden = sizes.hidden;
  experts.activation = sizes.activation;
  experts.router = router_of(config);
  const double clip = config.find("clip_qkv") == nullptr ? 0.0 : config.real("clip_qkv");
  if (config.find("clip_qkv") != nullptr && !(clip > 0.0)) {
    config.refuse(fmt::format(
        "clip_qkv is {}: a bound of queries, keys and values is above 0; set it to null for none",
        clip));
  }
  const bool bias = config.flag("attention_bias");
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t) {
    layer.attention.head_norm = HeadNorm::whole;
    layer.attention.clip = static_cast<float>(clip);
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.experts = experts;
  });
  return spec;
}

}  // namespace train::engine
