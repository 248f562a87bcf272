#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/model_config.hpp"

namespace train::engine {

std::string_view gpt2_keys() {
  return R"({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_inner": null, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
    "tie_word_embeddings": true})";
}

/// GPT-2 (Radford et al. 2019): learned positions, LayerNorms with biases, matrices stored as
/// [inputs, outputs].
ModelSpec gpt2_model(ModelConfig& config) {
  for (const auto& [other, key] :
       {std::pair("hidden_size", "n_embd"), std::pair("num_hidden_layers", "n_layer"),
        std::pair("num_attention_heads", "n_head"),
        std::pair("max_position_embeddings", "n_positions")}) {
    config.take_as(other, key);
  }
  ModelSpec spec;
  spec.vocab_size = config.size("vocab_size");
  spec.embedding_dim = config.size("n_embd");
  spec.embedding = "transformer.wte.weight";
  spec.positions = "transformer.wpe.weight";
  spec.position_rows = config.size("n_positions");
  spec.max_positions = spec.position_rows;
  spec.head = "lm_head.weight";
  spec.tie_embeddings = config.flag("tie_word_embeddings");
  spec.transposed_linears = true;
  const auto eps = static_cast<float>(config.real("layer_norm_epsilon"));
  spec.final_norm = layer_norm("transformer.ln_f", eps);
  const std::int64_t heads = config.size("n_head");
  const std::int64_t head_dim = std::max<std::int64_t>(1, spec.embedding_dim / heads);
  const std::int64_t hidden = config.size_if_any("n_inner").value_or(4 * spec.embedding_dim);
  const kernels::ActivationKind activation = config.activation("activation_function");
  const float scale =
      config.flag("scale_attn_weights") ? 1.0F / std::sqrt(static_cast<float>(head_dim)) : 1.0F;
  const bool by_depth = config.flag("scale_attn_by_inverse_layer_idx");
  const std::int64_t layers = config.size("n_layer");
  for (std::int64_t index = 0; index < layers; ++index) {
    DecoderLayer layer;
    layer.prefix = fmt::format("transformer.h.{}.", index);
    layer.attention_norms.pre = layer_norm("ln_1", eps);
    layer.mlp_norms.pre = layer_norm("ln_2", eps);
    layer.attention.heads = heads;
    layer.attention.kv_heads = heads;
    layer.attention.head_dim = head_dim;
    if (by_depth || scale == 1.0F) {
      layer.attention.scale = scale / (by_depth ? static_cast<float>(index + 1) : 1.0F);
    }
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.projection_bias = true;
    layer.attention.output_bias = true;
    layer.attention.query = "attn.c_attn";
    layer.attention.output = "attn.c_proj";
    layer.mlp.hidden = hidden;
    layer.mlp.activation = activation;
    layer.mlp.bias = true;
    layer.mlp.in = "mlp.c_fc";
    layer.mlp.out = "mlp.c_proj";
    spec.layers.push_back(layer.spec());
  }
  return spec;
}

}  // namespace train::engine
