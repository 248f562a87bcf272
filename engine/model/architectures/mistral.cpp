#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view mistral_keys() {
  return R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false,
    "head_dim": null, "sliding_window": 4096, "layer_types": null,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Mistral 7B (Jiang et al. 2023): Llama with an optional window on every layer; with layer_types,
/// which transformers treats as a Ministral, only on the layers listed there.
ModelSpec mistral_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const auto window = config.size_if_any("sliding_window");
  const auto windows =
      config.layer_windows(sizes.layers, window, [&](std::int64_t) { return window.has_value(); });
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.pairs_in_gguf = true;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

std::string_view ministral_keys() { return mistral_keys(); }

/// Ministral 8B (Mistral AI 2024).
ModelSpec ministral_model(ModelConfig& config) { return mistral_model(config); }

}  // namespace train::engine
