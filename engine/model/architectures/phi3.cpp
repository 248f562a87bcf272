#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/rope_config.hpp"

namespace train::engine {

std::string_view phi3_keys() {
  return R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": null,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "head_dim": null,
    "sliding_window": null, "original_max_position_embeddings": 4096,
    "rope_parameters": null, "rope_scaling": null, "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0})";
}

/// Phi-3, Phi-4 and Phi-4-mini (Abdin et al. 2024): Llama with fused matrices [Q | K | V] and
/// [gate | up].
ModelSpec phi3_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  add_ropes(config, {.partial = true, .longrope_alone = true}, sizes.head_dim, spec);
  const std::int64_t window = config.size_if_any("sliding_window").value_or(0);
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t) {
    layer.attention.layout = ProjectionLayout::fused;
    layer.attention.query = "self_attn.qkv_proj";
    layer.attention.window = window;
    layer.mlp.fused = true;
    layer.mlp.in = "mlp.gate_up_proj";
  });
  return spec;
}

}  // namespace train::engine
