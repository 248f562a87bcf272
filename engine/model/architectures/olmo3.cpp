#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/olmo.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// OLMo 3 (Team OLMo 2025): OLMo 2 with windows on three layers of four, whose ropes are not
/// scaled.
ModelSpec olmo3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config, 1e-5);
  ModelSpec spec = decoder_model(config, sizes, false);
  constexpr double kTheta = 500000.0;
  spec.ropes = {
      rope_of(config,
              {.head_dim = sizes.head_dim, .theta = kTheta, .layer_type = "full_attention"}),
      plain_rope_of(
          config,
          {.head_dim = sizes.head_dim, .theta = kTheta, .layer_type = "sliding_attention"})};
  const std::int64_t window = config.size_or({"sliding_window"}, 4096);
  const auto windowed =
      config.windowed_layers(sizes.layers, [](std::int64_t layer) { return (layer + 1) % 4 != 0; });
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t index) {
    make_olmo_layer(config, sizes, layer);
    const bool local = windowed[static_cast<std::size_t>(index)];
    layer.attention.window = local ? window : 0;
    layer.attention.rope = local ? 1 : 0;
  });
  return spec;
}

}  // namespace train::engine
