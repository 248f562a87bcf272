#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/qwen_windows.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view qwen2_keys() {
  return R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "head_dim": null,
    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": null,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values alone.
ModelSpec qwen2_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const std::vector<std::int64_t> windows = qwen_windows(config, sizes.layers);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.projection_bias = true;
    layer.attention.window = windows[static_cast<std::size_t>(index)];
  });
  return spec;
}

}  // namespace train::engine
