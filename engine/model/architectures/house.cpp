#include "engine/model/architectures/house.hpp"

#include <fmt/format.h>

namespace train::engine {

ModelSpec house_spec(const ModelShape& shape, kernels::NormKind norm) {
  ModelSpec spec;
  spec.vocab_size = shape.vocab_size;
  spec.embedding_dim = shape.embedding_dim;
  spec.embedding = "transformer.wte.weight";
  spec.ropes = {{.theta = shape.rope_theta, .rotary_dim = shape.head_dim}};
  spec.final_norm = {.name = "transformer.ln_f", .kind = norm, .eps = shape.norm_eps};
  spec.head = "lm_head.weight";
  spec.tie_embeddings = shape.tie_embeddings;
  spec.residual_scale = shape.residual_scale;
  spec.z_loss_coeff = shape.z_loss_coeff;
  return spec;
}

DecoderLayer house_layer(const ModelShape& shape, kernels::NormKind norm, std::int64_t index) {
  DecoderLayer layer;
  layer.prefix = fmt::format("transformer.h.{}.", index);
  const NormSpec any{.name = {}, .kind = norm, .eps = shape.norm_eps};
  layer.attention_norms.pre = any;
  layer.attention_norms.pre->name = "ln_1";
  layer.mlp_norms.pre = any;
  layer.mlp_norms.pre->name = "ln_2";
  layer.attention.heads = shape.heads;
  layer.attention.kv_heads = shape.heads;
  layer.attention.head_dim = shape.head_dim;
  layer.attention.head_norm = shape.qk_norm ? HeadNorm::per_head : HeadNorm::none;
  layer.attention.norm = any;
  layer.attention.rope = 0;
  layer.mlp.hidden = shape.mlp_hidden;
  return layer;
}

}  // namespace train::engine
