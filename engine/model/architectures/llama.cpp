#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view llama_keys() {
  return R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": null,
    "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false,
    "attention_bias": false, "mlp_bias": false, "head_dim": null,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": null, "original_max_position_embeddings": null})";
}

/// Llama 1 to 3 (Touvron et al. 2023), and all that took its form: SmolLM2, TinyLlama, Yi.
ModelSpec llama_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {}, sizes.head_dim, spec);
  const bool attention_bias = config.flag("attention_bias");
  const bool mlp_bias = config.flag("mlp_bias");
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t) {
    layer.attention.pairs_in_gguf = true;
    layer.attention.projection_bias = attention_bias;
    layer.attention.output_bias = attention_bias;
    layer.mlp.bias = mlp_bias;
  });
  return spec;
}

}  // namespace train::engine
