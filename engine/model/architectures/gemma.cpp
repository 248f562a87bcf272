#include "engine/model/architectures/gemma.hpp"

#include <bit>
#include <cmath>

namespace train::engine {
namespace {

/// To the nearest bfloat16, ties to even: the factor is part of models whose weights are such.
float rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t odd = (bits >> 16U) & 1U;
  return std::bit_cast<float>((bits + 0x7FFFU + odd) & 0xFFFF0000U);
}

}  // namespace

ModelSpec gemma_model(ModelConfig& config, const DecoderSizes& sizes) {
  ModelSpec spec = decoder_model(config, sizes, true);
  const auto factor = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding_dim)));
  const std::string dtype = config.text_or({"dtype", "torch_dtype"}, "float32");
  if (dtype == "float16") {
    config.refuse("dtype is float16, in which this family overflows: give bfloat16 or float32");
  }
  spec.embedding_scale = dtype == "bfloat16" ? rounded_to_bf16(factor) : factor;
  spec.final_norm.plus_one = true;
  return spec;
}

void make_gemma_layer(ModelConfig& config, const DecoderSizes& sizes, LayerSpec& layer) {
  layer.attention_norms.pre = rms_norm("input_layernorm", sizes.eps, true);
  layer.attention_norms.post = rms_norm("post_attention_layernorm", sizes.eps, true);
  layer.mlp_norms.pre = rms_norm("pre_feedforward_layernorm", sizes.eps, true);
  layer.mlp_norms.post = rms_norm("post_feedforward_layernorm", sizes.eps, true);
  layer.attention.norm.plus_one = true;
  const double scalar = config.real_or({"query_pre_attn_scalar"}, 256.0);
  layer.attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  layer.mlp.activation =
      config.activation({"hidden_activation", "hidden_act"}, "gelu_pytorch_tanh");
  const bool bias = config.flag_or({"attention_bias"}, false);
  layer.attention.projection_bias = bias;
  layer.attention.output_bias = bias;
}

}  // namespace train::engine
