#include "engine/model/architectures/house.hpp"

namespace train::engine {

ModelSpec dstar_qwen3_spec(const ModelShape& shape) {
  constexpr auto norm = kernels::NormKind::rms;
  ModelSpec spec = house_spec(shape, norm);
  spec.architecture = "dstar_qwen3";
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    DecoderLayer layer = house_layer(shape, norm, index);
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
    spec.layers.push_back(layer.spec());
  }
  return spec;
}

}  // namespace train::engine
