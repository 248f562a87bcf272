#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {
namespace {

/// A number of the rope's settings; `otherwise` where it has none.
double number_of(ModelConfig& config, const nlohmann::json& rope, const char* key,
                 double otherwise) {
  const auto found = rope.find(key);
  if (found == rope.end() || found->is_null()) {
    return otherwise;
  }
  if (!found->is_number()) {
    config.refuse(fmt::format("{} of the rope's scaling is not a number", key));
    return otherwise;
  }
  return found->get<double>();
}

/// 1 / sqrt(width of a key), times the square of yarn's factor of scores where mscale_all_dim asks
/// for it.
float score_scale(ModelConfig& config, const ModelSpec& spec, std::int64_t key_dim) {
  const nlohmann::json rope = nlohmann::json::parse(spec.rope_keys).at("rope_parameters");
  const double root = 1.0 / std::sqrt(static_cast<double>(key_dim));
  if (rope.at("rope_type") != "yarn") {
    for (const char* const key : {"rope_scaling", "rope_parameters"}) {
      const nlohmann::json* given = config.find(key);
      if (rope.at("rope_type") != "default" && given != nullptr &&
          number_of(config, *given, "mscale_all_dim", 0.0) != 0.0) {
        config.refuse(
            fmt::format("mscale_all_dim of {} is supported with rope_type \"yarn\" alone", key));
      }
    }
    return static_cast<float>(root);
  }
  const double all = number_of(config, rope, "mscale_all_dim", 0.0);
  const double factor = number_of(config, rope, "factor", 1.0);
  const double gain = yarn_gain(factor, all);
  return static_cast<float>(all == 0.0 ? root : root * gain * gain);
}

LatentAttentionSpec latent_attention(ModelConfig& config, const DecoderSizes& sizes) {
  LatentAttentionSpec attention;
  attention.heads = sizes.heads;
  attention.query_rank = config.size_if_any("q_lora_rank").value_or(0);
  attention.key_rank = config.size("kv_lora_rank");
  attention.plain_dim = config.size("qk_nope_head_dim");
  attention.rope_dim = config.size("qk_rope_head_dim");
  attention.value_dim = config.size("v_head_dim");
  attention.bias = config.flag("attention_bias");
  attention.rope = 0;
  attention.query_in = "self_attn.q_a_proj";
  attention.query_norm = "self_attn.q_a_layernorm";
  attention.query = attention.query_rank > 0 ? "self_attn.q_b_proj" : "self_attn.q_proj";
  attention.key_in = "self_attn.kv_a_proj_with_mqa";
  attention.key_norm = "self_attn.kv_a_layernorm";
  attention.key_value = "self_attn.kv_b_proj";
  attention.output = "self_attn.o_proj";
  return attention;
}

}  // namespace

std::string_view deepseek_v3_keys() {
  return R"({"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": null, "attention_bias": false,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "qk_head_dim": null, "v_head_dim": 128, "rope_interleave": true,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
    "norm_topk_prob": true, "first_k_dense_replace": 3, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1, "num_mtp_layers": 1,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// DeepSeek-V3 and R1 (DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437): latent attention,
/// experts behind the first dense layers, chosen by sigmoids in groups with a correction bias.
ModelSpec deepseek_v3_model(ModelConfig& config) {
  const DecoderSizes sizes = latent_decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  LatentAttentionSpec attention = latent_attention(config, sizes);
  add_ropes(config, {}, attention.rope_dim, spec);
  if (config.flag("rope_interleave")) {
    spec.ropes.at(0).pairing = kernels::RopePairing::interleaved;
  }
  attention.scale = score_scale(config, spec, attention.plain_dim + attention.rope_dim);
  const ExpertsSpec experts = sigmoid_experts(config, sizes);
  const std::int64_t dense = config.count("first_k_dense_replace");
  keep_further_layers(config, sizes.layers, spec);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.latent = attention;
    if (index >= dense) {
      layer.experts = experts;
    }
  });
  return spec;
}

std::string_view glm4_moe_keys() {
  return R"({"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944,
    "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8,
    "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null, "attention_bias": false,
    "use_qk_norm": false, "moe_intermediate_size": 1408, "n_routed_experts": 128,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "routed_scaling_factor": 1.0, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": true, "first_k_dense_replace": 1,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1, "num_mtp_layers": 1,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5, "original_max_position_embeddings": null})";
}

/// GLM-4.5 and its successors (GLM-4.5 Team 2025): Llama's attention with biases, perhaps norms of
/// queries and keys, a rope over a part of each head; experts as DeepSeek-V3's.
ModelSpec glm4_moe_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  spec.gguf_mlp_norm = "post_attention_norm";
  add_ropes(config, {.partial = true}, sizes.head_dim, spec);
  const bool bias = config.flag("attention_bias");
  const bool norms = config.flag("use_qk_norm");
  const ExpertsSpec experts = sigmoid_experts(config, sizes);
  const std::int64_t dense = config.count("first_k_dense_replace");
  keep_further_layers(config, sizes.layers, spec);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.projection_bias = bias;
    layer.attention.head_norm = norms ? HeadNorm::per_head : HeadNorm::none;
    if (index >= dense) {
      layer.experts = experts;
    }
  });
  return spec;
}

}  // namespace train::engine
