#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/gemma.hpp"
#include "engine/model/architectures/rope_config.hpp"

namespace train::engine {

/// Gemma 2 (Gemma Team 2024): caps of scores and logits, a window on every other layer.
ModelSpec gemma2_model(ModelConfig& config) {
  DecoderSizes sizes = decoder_sizes(config, 1e-6);
  sizes.head_dim = config.size_or({"head_dim"}, 256);
  ModelSpec spec = gemma_model(config, sizes);
  spec.ropes = {rope_of(config, {.head_dim = sizes.head_dim})};
  const auto cap = [&](const char* key, double otherwise) {
    // Absent is the family's own; null is none.
    return config.json().contains(key) ? config.real_or({key}, 0.0) : otherwise;
  };
  spec.logit_softcap = static_cast<float>(cap("final_logit_softcapping", 30.0));
  const auto softcap = static_cast<float>(cap("attn_logit_softcapping", 50.0));
  const std::int64_t window = config.size_or({"sliding_window"}, 4096);
  const auto windowed =
      config.windowed_layers(sizes.layers, [](std::int64_t layer) { return layer % 2 == 0; });
  add_decoder_layers(config, sizes, spec, [&](LayerSpec& layer, std::int64_t index) {
    make_gemma_layer(config, sizes, layer);
    layer.attention.softcap = softcap;
    layer.attention.window = windowed[static_cast<std::size_t>(index)] ? window : 0;
  });
  return spec;
}

}  // namespace train::engine
