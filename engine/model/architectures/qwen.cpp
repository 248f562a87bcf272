#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {
namespace {

/// The window's size, if use_sliding_window says that there is one.
std::optional<std::int64_t> qwen_window(ModelConfig& config) {
  if (config.flag("use_sliding_window")) {
    return config.size_if_any("sliding_window");
  }
  (void)config.find("sliding_window");  // Saved as 0 or null where it is not used.
  return std::nullopt;
}

/// The window of each layer of a Qwen: none without use_sliding_window; else on the layers listed
/// in layer_types, or from max_window_layers on.
std::vector<std::int64_t> qwen_windows(ModelConfig& config, std::int64_t layers) {
  const std::optional<std::int64_t> window = qwen_window(config);
  const double first = config.real("max_window_layers");
  return config.layer_windows(layers, window, [&](std::int64_t layer) {
    return window.has_value() && static_cast<double>(layer) >= first;
  });
}

/// The experts of both families; a shared one is not among them.
ExpertsSpec qwen_experts(ModelConfig& config, const DecoderSizes& sizes,
                         const char* other_count_key) {
  ExpertsSpec experts = read_experts(config, "num_experts", other_count_key);
  name_experts(experts);
  experts.hidden = config.size("moe_intermediate_size");
  experts.activation = sizes.activation;
  experts.router = router_of(config);
  return experts;
}

}  // namespace

std::string_view qwen2_keys() {
  return R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": null,
    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": null,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values alone.
ModelSpec qwen2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.projection_bias = true;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

std::string_view qwen3_keys() {
  return R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": 128,
    "attention_bias": false,
    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": null,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Qwen3, dense (Yang et al. 2025): norms of queries and keys per head, before the rotation.
ModelSpec qwen3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const bool bias = config.flag("attention_bias");
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.head_norm = HeadNorm::per_head;
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

std::string_view qwen2_moe_keys() {
  return R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": null, "qkv_bias": true,
    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": null,
    "num_experts": 60, "num_experts_per_tok": 4, "norm_topk_prob": false,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
    "decoder_sparse_step": 1, "mlp_only_layers": null,
    "output_router_logits": false, "router_aux_loss_coef": 0.001,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Qwen1.5-MoE and Qwen2-MoE (Qwen Team 2024): Qwen2 with experts for most MLPs, and beside them
/// one that computes every row and has a gate.
ModelSpec qwen2_moe_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  if (config.flag("use_sliding_window") && config.find("layer_types") == nullptr) {
    config.refuse(
        "use_sliding_window is true, and versions of transformers disagree on the layers with a "
        "window: list them in layer_types, each \"sliding_attention\" or \"full_attention\"");
  }
  ExpertsSpec experts = qwen_experts(config, sizes, nullptr);
  experts.shared = shared_expert(config.size("shared_expert_intermediate_size"));
  const std::vector<bool> sparse = sparse_layers(config, sizes.layers);
  const bool bias = config.flag("qkv_bias");
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.projection_bias = bias;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
    if (sparse[static_cast<std::size_t>(index)]) {
      layer.experts = experts;
    }
  });
  return spec;
}

std::string_view qwen3_moe_keys() {
  return R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 4,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": null, "attention_bias": false,
    "use_sliding_window": false, "sliding_window": 4096,
    "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": false,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1, "mlp_only_layers": null,
    "output_router_logits": false, "router_aux_loss_coef": 0.001,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Qwen3 with experts (Yang et al. 2025).
ModelSpec qwen3_moe_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const ExpertsSpec experts = qwen_experts(config, sizes, "num_local_experts");
  const std::vector<bool> sparse = sparse_layers(config, sizes.layers);
  const std::int64_t window = qwen_window(config).value_or(0);
  const bool bias = config.flag("attention_bias");
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.head_norm = HeadNorm::per_head;
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.attention.window = window;
    if (sparse[static_cast<std::size_t>(index)]) {
      layer.experts = experts;
    }
  });
  return spec;
}

}  // namespace train::engine
