#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view gpt_oss_keys() {
  return R"({"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
    "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": 64, "attention_bias": true,
    "sliding_window": 128, "layer_types": null,
    "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0, "output_router_logits": false, "router_aux_loss_coef": 0.001,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 150000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// GPT-OSS (OpenAI 2025, https://arxiv.org/abs/2508.10925): every second layer, the first among
/// them, has a window; each head's softmax has a sink; routers and experts have biases, and experts
/// a clamped SwiGLU.
ModelSpec gpt_oss_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  spec.gguf_mlp_norm = "post_attention_norm";
  config.set_if_none("rope_parameters", {{"rope_type", "yarn"},
                                         {"factor", 32.0},
                                         {"beta_fast", 32.0},
                                         {"beta_slow", 1.0},
                                         {"truncate", false},
                                         {"original_max_position_embeddings", 4096}});
  add_ropes(config, {}, sizes.head_dim, spec);
  const std::vector<std::int64_t> windows =
      config.layer_windows(sizes.layers, config.size_if_any("sliding_window"),
                           [](std::int64_t layer) { return layer % 2 == 0; });
  const bool bias = config.flag("attention_bias");
  if (config.flag("output_router_logits") && !config.gives("router_aux_loss_coef")) {
    config.refuse(
        "output_router_logits is true without router_aux_loss_coef, of which versions of "
        "transformers have different defaults: give it");
  }
  ExpertsSpec experts = read_experts(config, "num_local_experts", "num_experts");
  experts.hidden = sizes.hidden;
  experts.activation = kernels::ActivationKind::clamped_swiglu;
  experts.alpha = static_cast<float>(config.real("swiglu_alpha"));
  experts.limit = static_cast<float>(config.real("swiglu_limit"));
  experts.router = kernels::RouterKind::softmax_normalised;
  experts.gate_bias = true;
  experts.expert_bias = true;
  name_experts(experts);
  experts.gate = "mlp.router";
  experts.fused = true;
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.window = windows[static_cast<std::size_t>(index)];
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.attention.sinks = "self_attn.sinks";
    layer.experts = experts;
  });
  return spec;
}

}  // namespace train::engine
