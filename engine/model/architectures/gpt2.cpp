#include <fmt/format.h>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/model_config.hpp"

namespace train::engine {

/// GPT-2 (Radford et al. 2019): learned positions, LayerNorms with biases, matrices stored as
/// [inputs, outputs].
ModelSpec gpt2_model(ModelConfig& config) {
  ModelSpec spec;
  spec.vocab_size = config.size({"vocab_size"});
  spec.embedding_dim = config.size({"n_embd", "hidden_size"});
  spec.embedding = "transformer.wte.weight";
  spec.positions = "transformer.wpe.weight";
  spec.position_rows = config.size({"n_positions", "max_position_embeddings"});
  spec.max_positions = spec.position_rows;
  spec.head = "lm_head.weight";
  spec.tie_embeddings = config.flag_or({"tie_word_embeddings"}, true);
  spec.transposed_linears = true;
  const auto eps = static_cast<float>(config.real_or({"layer_norm_epsilon"}, 1e-5));
  spec.final_norm = layer_norm("transformer.ln_f", eps);
  const std::int64_t heads = config.size({"n_head", "num_attention_heads"});
  const std::int64_t head_dim = std::max<std::int64_t>(1, spec.embedding_dim / heads);
  const std::int64_t hidden = config.size_or({"n_inner"}, 4 * spec.embedding_dim);
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    config.refuse("scale_attn_weights is false, which is not supported");
  }
  config.require_absent({"scale_attn_by_inverse_layer_idx", "add_cross_attention"},
                        "layers are alike, and read themselves alone");
  const std::int64_t layers = config.size({"n_layer", "num_hidden_layers"});
  for (std::int64_t index = 0; index < layers; ++index) {
    LayerSpec layer;
    layer.prefix = fmt::format("transformer.h.{}.", index);
    layer.attention_norms.pre = layer_norm("ln_1", eps);
    layer.mlp_norms.pre = layer_norm("ln_2", eps);
    layer.attention.heads = heads;
    layer.attention.kv_heads = heads;
    layer.attention.head_dim = head_dim;
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.projection_bias = true;
    layer.attention.output_bias = true;
    layer.attention.query = "attn.c_attn";
    layer.attention.output = "attn.c_proj";
    layer.mlp.hidden = hidden;
    layer.mlp.activation = config.activation({"activation_function"}, "gelu_new");
    layer.mlp.bias = true;
    layer.mlp.in = "mlp.c_fc";
    layer.mlp.out = "mlp.c_proj";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace train::engine
