#include <fmt/format.h>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view gpt_neox_keys() {
  return R"({"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44,
    "num_attention_heads": 64, "intermediate_size": 24576, "hidden_act": "gelu",
    "max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "tie_word_embeddings": false,
    "use_parallel_residual": true, "attention_bias": true, "head_dim": null,
    "rope_parameters": null, "rope_scaling": null, "rotary_emb_base": 10000.0, "rotary_pct": 0.25,
    "original_max_position_embeddings": null})";
}

/// GPT-NeoX and Pythia (Black et al. 2022): LayerNorms with biases, branches side by side, queries,
/// keys and values head by head in one matrix, positions on a part of each head.
ModelSpec gpt_neox_model(ModelConfig& config) {
  ModelSpec spec;
  spec.vocab_size = config.size("vocab_size");
  spec.embedding_dim = config.size("hidden_size");
  spec.embedding = "gpt_neox.embed_in.weight";
  spec.head = "embed_out.weight";
  spec.tie_embeddings = config.flag("tie_word_embeddings");
  spec.max_positions = config.size("max_position_embeddings");
  const auto eps = static_cast<float>(config.real("layer_norm_eps"));
  spec.final_norm = layer_norm("gpt_neox.final_layer_norm", eps);
  const std::int64_t heads = config.size("num_attention_heads");
  const std::int64_t head_dim = std::max<std::int64_t>(1, spec.embedding_dim / heads);
  if (config.size_if_any("head_dim").value_or(head_dim) != head_dim) {
    config.refuse(
        fmt::format("head_dim is not {}, which hidden_size and num_attention_heads make: "
                    "leave it out",
                    head_dim));
  }
  add_ropes(config, {.theta_key = "rotary_emb_base", .share_key = "rotary_pct", .partial = true},
            head_dim, spec);
  const bool bias = config.flag("attention_bias");
  const bool parallel = config.flag("use_parallel_residual");
  const std::int64_t hidden = config.size("intermediate_size");
  const kernels::ActivationKind activation = config.activation("hidden_act");
  const std::int64_t layers = config.size("num_hidden_layers");
  for (std::int64_t index = 0; index < layers; ++index) {
    DecoderLayer layer;
    layer.prefix = fmt::format("gpt_neox.layers.{}.", index);
    layer.parallel = parallel;
    layer.attention_norms.pre = layer_norm("input_layernorm", eps);
    layer.mlp_norms.pre = layer_norm("post_attention_layernorm", eps);
    layer.attention.heads = heads;
    layer.attention.kv_heads = heads;
    layer.attention.head_dim = head_dim;
    layer.attention.layout = ProjectionLayout::per_head;
    layer.attention.projection_bias = bias;
    layer.attention.output_bias = bias;
    layer.attention.rope = 0;
    layer.attention.query = "attention.query_key_value";
    layer.attention.output = "attention.dense";
    layer.mlp.hidden = hidden;
    layer.mlp.activation = activation;
    layer.mlp.bias = true;
    layer.mlp.in = "mlp.dense_h_to_4h";
    layer.mlp.out = "mlp.dense_4h_to_h";
    spec.layers.push_back(layer.spec());
  }
  return spec;
}

}  // namespace train::engine
