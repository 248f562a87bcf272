#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Phi-3, Phi-4 and Phi-4-mini (Abdin et al. 2024): Llama with fused matrices [Q | K | V] and
/// [gate | up].
ModelSpec phi3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config, 1e-5);
  ModelSpec spec = decoder_model(config, sizes, false);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  const std::int64_t window = config.size_or({"sliding_window"}, 0);
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t) {
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.query = "self_attn.qkv_proj";
    layer.attention.window = window;
    layer.mlp.fused = true;
    layer.mlp.in = "mlp.gate_up_proj";
  });
  return spec;
}

}  // namespace train::engine
