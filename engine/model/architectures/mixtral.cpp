#include <fmt/format.h>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view mixtral_keys() {
  return R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null, "sliding_window": null,
    "num_local_experts": 8, "num_experts_per_tok": 2, "router_jitter_noise": 0.0,
    "output_router_logits": false, "router_aux_loss_coef": 0.001,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 1000000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Mixtral 8x7B and 8x22B (Jiang et al. 2024): Mistral with experts for its MLPs, the weights of
/// those chosen divided by their sum.
ModelSpec mixtral_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  ExpertsSpec experts = read_experts(config, "num_local_experts", "num_experts");
  experts.hidden = sizes.hidden;
  experts.activation = sizes.activation;
  experts.router = kernels::RouterKind::softmax_normalised;
  experts.gate = "block_sparse_moe.gate";
  experts.expert = "block_sparse_moe.experts.{}.";
  experts.in = "w1";
  experts.up = "w3";
  experts.out = "w2";
  if (const double noise = config.real("router_jitter_noise"); noise != 0.0) {
    config.refuse(fmt::format(
        "router_jitter_noise is {}: training with noise on what the experts read is not supported; "
        "set it to 0",
        noise));
  }
  const std::int64_t window = config.size_if_any("sliding_window").value_or(0);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t) {
    layer.attention.pairs_in_gguf = true;
    layer.attention.window = window;
    layer.experts = experts;
  });
  return spec;
}

}  // namespace train::engine
