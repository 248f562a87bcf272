#include "engine/model/architectures/gemma.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace train::engine {

ModelSpec gemma_model(ModelConfig& config, const DecoderSizes& sizes) {
  ModelSpec spec = decoder_model(config, sizes);
  const auto* other = config.find("hidden_act");
  if (other != nullptr && *other != *config.find("hidden_activation")) {
    config.pass_over("hidden_act (this family reads hidden_activation)");
  }
  // Not rounded to the type of the weights: that belongs to a computation in that type, and here
  // and wherever an fp32 export is used one function is wanted.
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding_dim)));
  spec.logit_softcap = static_cast<float>(config.cap_if_any("final_logit_softcapping"));
  spec.final_norm.plus_one = true;
  return spec;
}

void make_gemma_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer) {
  layer.attention_norms.pre = rms_norm("input_layernorm", sizes.eps, true);
  layer.attention_norms.post = rms_norm("post_attention_layernorm", sizes.eps, true);
  layer.mlp_norms.pre = rms_norm("pre_feedforward_layernorm", sizes.eps, true);
  layer.mlp_norms.post = rms_norm("post_feedforward_layernorm", sizes.eps, true);
  layer.attention.norm.plus_one = true;
  const double scalar = config.real("query_pre_attn_scalar");
  layer.attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  const bool bias = config.flag("attention_bias");
  layer.attention.projection_bias = bias;
  layer.attention.output_bias = bias;
}

}  // namespace train::engine
