#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/gemma.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Gemma 3, its text half (Gemma Team 2025): norms of queries and keys, five windowed layers with a
/// rope of their own to one that sees all.
ModelSpec gemma3_model(ModelConfig& config) {
  DecoderSizes sizes = decoder_sizes(config, 1e-6);
  sizes.head_dim = config.size_or({"head_dim"}, 256);
  ModelSpec spec = gemma_model(config, sizes);
  config.require_zero({"attn_logit_softcapping", "final_logit_softcapping"});
  config.require_absent({"use_bidirectional_attention"}, "attention is causal here");
  spec.ropes = {
      rope_of(config, {.head_dim = sizes.head_dim, .theta = 1e6, .layer_type = "full_attention"}),
      rope_of(config, {.head_dim = sizes.head_dim,
                       .layer_type = "sliding_attention",
                       .scaled = false,
                       .theta_key = "rope_local_base_freq"})};
  const std::int64_t window = config.size_or({"sliding_window"}, 4096);
  const std::int64_t pattern = config.size_or({"sliding_window_pattern"}, 6);
  const bool listed = config.find({"layer_types"}) != nullptr;
  const auto windowed = config.windowed_layers(sizes.layers, [](std::int64_t) { return false; });
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t index) {
    make_gemma_layer(config, sizes, layer);
    layer.attention.head_norm = HeadNorm::per_head;
    const bool local =
        listed ? windowed[static_cast<std::size_t>(index)] : (index + 1) % pattern != 0;
    layer.attention.window = local ? window : 0;
    layer.attention.rope = local ? 1 : 0;
  });
  return spec;
}

}  // namespace train::engine
