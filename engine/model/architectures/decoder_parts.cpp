#include "engine/model/architectures/decoder_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace train::engine {

LayerSpec DecoderLayer::spec() const {
  std::shared_ptr<const BlockSpec> channels;
  if (experts) {
    channels = std::make_shared<const ExpertsSpec>(*experts);
  } else {
    channels = std::make_shared<const MlpSpec>(mlp);
  }
  std::shared_ptr<const BlockSpec> rows;
  if (latent) {
    rows = std::make_shared<const LatentAttentionSpec>(*latent);
  } else {
    rows = std::make_shared<const AttentionSpec>(attention);
  }
  return {.prefix = prefix,
          .parallel = parallel,
          .branches = {
              {.pre = attention_norms.pre, .post = attention_norms.post, .block = std::move(rows)},
              {.pre = mlp_norms.pre, .post = mlp_norms.post, .block = std::move(channels)}}};
}

DecoderSizes decoder_sizes(ModelConfig& config) {
  DecoderSizes sizes;
  sizes.layers = config.size("num_hidden_layers");
  sizes.heads = config.size("num_attention_heads");
  sizes.kv_heads = config.size_if_any("num_key_value_heads").value_or(sizes.heads);
  sizes.head_dim =
      config.size_if_any("head_dim")
          .value_or(std::max<std::int64_t>(1, config.size("hidden_size") / sizes.heads));
  sizes.hidden = config.size("intermediate_size");
  sizes.eps = static_cast<float>(config.real("rms_norm_eps"));
  sizes.activation =
      config.activation(config.may_read("hidden_activation") ? "hidden_activation" : "hidden_act");
  if (sizes.head_dim > 512) {
    config.refuse(fmt::format("head_dim is {}: at most 512 is supported", sizes.head_dim));
  }
  return sizes;
}

DecoderSizes latent_decoder_sizes(ModelConfig& config) {
  DecoderSizes sizes;
  sizes.layers = config.size("num_hidden_layers");
  sizes.heads = config.size("num_attention_heads");
  // Without the key transformers has its class's number, which it does not read.
  sizes.kv_heads = config.gives("num_key_value_heads")
                       ? config.size_if_any("num_key_value_heads").value_or(sizes.heads)
                       : sizes.heads;
  const std::int64_t rope_dim = config.size("qk_rope_head_dim");
  const std::int64_t key_dim = config.size("qk_nope_head_dim") + rope_dim;
  for (const auto& [derived, value] :
       {std::pair("head_dim", rope_dim), std::pair("qk_head_dim", key_dim)}) {
    if (config.size_if_any(derived).value_or(value) != value) {
      config.refuse(
          fmt::format("{} is {}, but by qk_nope_head_dim and qk_rope_head_dim it is {}: "
                      "leave it out",
                      derived, config.size(derived), value));
    }
  }
  if (sizes.kv_heads != sizes.heads) {
    config.refuse(
        fmt::format("num_key_value_heads is {}, but must equal the {} heads in this model",
                    sizes.kv_heads, sizes.heads));
  }
  sizes.head_dim = 1;
  sizes.hidden = config.size("intermediate_size");
  sizes.eps = static_cast<float>(config.real("rms_norm_eps"));
  sizes.activation = config.activation("hidden_act");
  return sizes;
}

void keep_further_layers(ModelConfig& config, std::int64_t layers, ModelSpec& spec) {
  config.take_alias("num_mtp_layers", "num_nextn_predict_layers");
  const std::int64_t more = config.count("num_nextn_predict_layers");
  for (std::int64_t layer = 0; layer < more; ++layer) {
    spec.kept.push_back(fmt::format("model.layers.{}.", layers + layer));
  }
}

NormSpec layer_norm(std::string name, float eps) {
  return {.name = std::move(name), .kind = kernels::NormKind::layer, .eps = eps, .bias = true};
}

NormSpec rms_norm(std::string name, float eps, bool plus_one) {
  return {
      .name = std::move(name), .kind = kernels::NormKind::rms, .eps = eps, .plus_one = plus_one};
}

ModelSpec decoder_model(ModelConfig& config, const DecoderSizes& sizes) {
  ModelSpec spec;
  spec.vocab_size = config.size("vocab_size");
  spec.embedding_dim = config.size("hidden_size");
  spec.embedding = "model.embed_tokens.weight";
  spec.final_norm = rms_norm("model.norm", sizes.eps);
  spec.head = "lm_head.weight";
  spec.tie_embeddings = config.flag("tie_word_embeddings");
  spec.max_positions = config.size("max_position_embeddings");
  return spec;
}

DecoderLayer decoder_layer(const DecoderSizes& sizes, std::int64_t index) {
  DecoderLayer layer;
  layer.prefix = fmt::format("model.layers.{}.", index);
  layer.attention_norms.pre = rms_norm("input_layernorm", sizes.eps);
  layer.mlp_norms.pre = rms_norm("post_attention_layernorm", sizes.eps);
  AttentionSpec& attention = layer.attention;
  attention.heads = sizes.heads;
  attention.kv_heads = sizes.kv_heads;
  attention.head_dim = sizes.head_dim;
  attention.rope = 0;
  attention.query = "self_attn.q_proj";
  attention.key = "self_attn.k_proj";
  attention.value = "self_attn.v_proj";
  attention.output = "self_attn.o_proj";
  attention.query_norm = "self_attn.q_norm";
  attention.key_norm = "self_attn.k_norm";
  attention.norm = rms_norm({}, sizes.eps);
  layer.mlp.hidden = sizes.hidden;
  layer.mlp.activation = sizes.activation;
  layer.mlp.gated = true;
  layer.mlp.in = "mlp.gate_proj";
  layer.mlp.up = "mlp.up_proj";
  layer.mlp.out = "mlp.down_proj";
  return layer;
}

void add_layers(std::vector<DecoderLayer> layers, ModelSpec& spec) {
  const auto has_experts = [](const DecoderLayer& layer) { return layer.experts.has_value(); };
  const std::int64_t all = std::count_if(layers.begin(), layers.end(), has_experts);
  std::int64_t before = 0;
  for (DecoderLayer& layer : layers) {
    if (layer.experts) {
      layer.experts->index = before++;
      layer.experts->layers = all;
    }
    spec.layers.push_back(layer.spec());
  }
}

void add_decoder_layers(const DecoderSizes& sizes, ModelSpec& spec,
                        const std::function<void(DecoderLayer&, std::int64_t)>& change) {
  std::vector<DecoderLayer> layers;
  for (std::int64_t index = 0; index < sizes.layers; ++index) {
    change(layers.emplace_back(decoder_layer(sizes, index)), index);
  }
  add_layers(std::move(layers), spec);
}

}  // namespace train::engine
