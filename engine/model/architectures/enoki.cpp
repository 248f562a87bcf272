#include "engine/model/architectures/house.hpp"

namespace train::engine {

ModelSpec enoki_spec(const ModelShape& shape) {
  constexpr auto norm = kernels::NormKind::layer;
  ModelSpec spec = house_spec(shape, norm);
  spec.architecture = "enoki";
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    DecoderLayer layer = house_layer(shape, norm, index);
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.query = "attn.c_attn";
    layer.attention.output = "attn.c_proj";
    layer.attention.query_norm = "attn.q_layernorm";
    layer.attention.key_norm = "attn.k_layernorm";
    layer.mlp.activation = kernels::ActivationKind::gelu;
    layer.mlp.in = "mlp.c_fc";
    layer.mlp.out = "mlp.c_proj";
    spec.layers.push_back(layer.spec());
  }
  return spec;
}

}  // namespace train::engine
