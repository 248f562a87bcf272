#include <fmt/format.h>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// GPT-NeoX and Pythia (Black et al. 2022): LayerNorms with biases, branches side by side, queries,
/// keys and values head by head in one matrix, positions on a part of each head.
ModelSpec gpt_neox_model(ModelConfig& config) {
  ModelSpec spec;
  spec.vocab_size = config.size({"vocab_size"});
  spec.embedding_dim = config.size({"hidden_size"});
  spec.embedding = "gpt_neox.embed_in.weight";
  spec.head = "embed_out.weight";
  spec.tie_embeddings = config.flag_or({"tie_word_embeddings"}, false);
  spec.max_positions = config.size_or({"max_position_embeddings"}, 0);
  const auto eps = static_cast<float>(config.real_or({"layer_norm_eps"}, 1e-5));
  spec.final_norm = layer_norm("gpt_neox.final_layer_norm", eps);
  const std::int64_t heads = config.size({"num_attention_heads"});
  const std::int64_t head_dim = std::max<std::int64_t>(1, spec.embedding_dim / heads);
  spec.ropes = {rope_of(config, {.head_dim = head_dim, .rotary_share = 0.25})};
  const bool bias = config.flag_or({"attention_bias"}, true);
  const std::int64_t layers = config.size({"num_hidden_layers"});
  for (std::int64_t index = 0; index < layers; ++index) {
    LayerSpec layer;
    layer.prefix = fmt::format("gpt_neox.layers.{}.", index);
    layer.parallel = config.flag_or({"use_parallel_residual"}, true);
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
    layer.mlp.hidden = config.size({"intermediate_size"});
    layer.mlp.activation = config.activation({"hidden_act"}, "gelu");
    layer.mlp.bias = true;
    layer.mlp.in = "mlp.dense_h_to_4h";
    layer.mlp.out = "mlp.dense_4h_to_h";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace train::engine
