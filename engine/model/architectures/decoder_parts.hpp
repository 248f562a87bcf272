#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/latent_attention_spec.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/config_json/model_config.hpp"
#include "engine/model/experts/experts_block.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// A layer of attention and an MLP, or experts, while a family fills it in.
struct DecoderLayer {
  struct Norms {
    std::optional<NormSpec> pre = {}, post = {};
  };
  std::string prefix = {};  ///< As the rest, of LayerSpec.
  bool parallel = false;
  Norms attention_norms = {}, mlp_norms = {};
  AttentionSpec attention = {};
  MlpSpec mlp = {};
  std::optional<LatentAttentionSpec> latent = {};  ///< In place of the attention.
  std::optional<ExpertsSpec> experts = {};         ///< In place of the MLP.

  [[nodiscard]] LayerSpec spec() const;
};

/// Sizes shared by the families that follow Llama: equal config keys and tensor names, RMS norms,
/// SwiGLU, ropes by halves.
struct DecoderSizes {
  std::int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden = 0;
  float eps = 1e-6F;
  kernels::ActivationKind activation = kernels::ActivationKind::silu;
};

/// num_hidden_layers and so on. The activation is hidden_act, or hidden_activation where the family
/// reads that.
[[nodiscard]] DecoderSizes decoder_sizes(ModelConfig& config);
/// Likewise, where keys of another block give the sizes of heads: head_dim and qk_head_dim follow
/// from them, and num_key_value_heads is the number of heads.
[[nodiscard]] DecoderSizes latent_decoder_sizes(ModelConfig& config);

/// Sets ModelSpec::kept to the layers behind the model's own, of which num_nextn_predict_layers
/// tells.
void keep_further_layers(ModelConfig& config, std::int64_t layers, ModelSpec& spec);

/// Vocabulary, width, embedding, final norm and head; no layers and no ropes.
[[nodiscard]] ModelSpec decoder_model(ModelConfig& config, const DecoderSizes& sizes);

/// A layer with norms before both branches and separate projections without biases; rope 0.
[[nodiscard]] DecoderLayer decoder_layer(const DecoderSizes& sizes, std::int64_t index);

/// Adds layers to those of `spec`, which has none of experts, and numbers the layers of experts.
void add_layers(std::vector<DecoderLayer> layers, ModelSpec& spec);

/// Adds a layer after the other, each as `change` leaves it.
void add_decoder_layers(const DecoderSizes& sizes, ModelSpec& spec,
                        const std::function<void(DecoderLayer&, std::int64_t)>& change);

/// A LayerNorm with a bias.
[[nodiscard]] NormSpec layer_norm(std::string name, float eps);
/// An RMS norm.
[[nodiscard]] NormSpec rms_norm(std::string name, float eps, bool plus_one = false);

}  // namespace train::engine
