#include "engine/model/architectures/own_architectures.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"

namespace train::engine {
namespace {

/// Spec shared by both architectures: names of embedding, norms and head, ropes, scales.
ModelSpec own_spec(const ModelShape& shape, kernels::NormKind norm) {
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

/// A layer of own_spec(); only the sizes of attention and MLP are filled in.
DecoderLayer own_layer(const ModelShape& shape, kernels::NormKind norm, std::int64_t index) {
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

/// Experts in place of the layer's MLP, where the shape has them: gated, with its activation.
void add_experts(const ModelShape& shape, DecoderLayer& layer) {
  if (shape.experts == 0) {
    return;
  }
  ExpertsSpec experts;
  name_experts(experts);
  experts.experts = shape.experts;
  experts.slots = shape.experts_per_token;
  experts.hidden = shape.expert_hidden;
  experts.activation = layer.mlp.activation;
  experts.router = shape.router;
  experts.scale = shape.router_scale;
  experts.groups = shape.router_groups;
  experts.kept_groups = shape.router_kept_groups;
  if (shape.router_bias_rate > 0.0) {
    experts.choice_bias = experts.gate + ".e_score_correction_bias";
    experts.choice_bias_rate = shape.router_bias_rate;
  }
  if (shape.shared_expert_hidden > 0) {
    experts.shared = shared_expert(shape.shared_expert_hidden);
  }
  layer.experts = std::move(experts);
}

}  // namespace

ModelSpec enoki_spec(const ModelShape& shape) {
  constexpr auto norm = kernels::NormKind::layer;
  ModelSpec spec = own_spec(shape, norm);
  spec.architecture = "enoki";
  std::vector<DecoderLayer> layers;
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    DecoderLayer& layer = layers.emplace_back(own_layer(shape, norm, index));
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.query = "attn.c_attn";
    layer.attention.output = "attn.c_proj";
    layer.attention.query_norm = "attn.q_layernorm";
    layer.attention.key_norm = "attn.k_layernorm";
    layer.mlp.activation = kernels::ActivationKind::gelu;
    layer.mlp.in = "mlp.c_fc";
    layer.mlp.out = "mlp.c_proj";
    add_experts(shape, layer);
  }
  add_layers(std::move(layers), spec);
  return spec;
}

ModelSpec dstar_qwen3_spec(const ModelShape& shape) {
  constexpr auto norm = kernels::NormKind::rms;
  ModelSpec spec = own_spec(shape, norm);
  spec.architecture = "dstar_qwen3";
  std::vector<DecoderLayer> layers;
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    DecoderLayer& layer = layers.emplace_back(own_layer(shape, norm, index));
    layer.attention.output_gate = shape.output_gate;
    layer.attention.query = "attn.q_proj";
    layer.attention.key = "attn.k_proj";
    layer.attention.value = "attn.v_proj";
    layer.attention.output = "attn.o_proj";
    layer.attention.query_norm = "attn.q_norm";
    layer.attention.key_norm = "attn.k_norm";
    layer.mlp.gated = true;
    layer.mlp.activation = kernels::ActivationKind::silu;
    layer.mlp.in = "mlp.gate_proj";
    layer.mlp.up = "mlp.up_proj";
    layer.mlp.out = "mlp.down_proj";
    add_experts(shape, layer);
  }
  add_layers(std::move(layers), spec);
  return spec;
}

}  // namespace train::engine
