#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/expert_parts.hpp"
#include "engine/model/architectures/scan_parts.hpp"

namespace train::engine {
namespace {

/// The layers whose number is `<name>_offset` modulo `<name>_period`.
struct Period {
  std::int64_t period, offset;

  [[nodiscard]] bool has(std::int64_t layer) const { return layer % period == offset; }
};

Period read_period(ModelConfig& config, const std::string& name) {
  const Period read{config.size(name + "_period"), config.count(name + "_offset")};
  if (read.offset >= read.period) {
    config.refuse(
        fmt::format("{0}_offset is {1} of {0}_period {2}: no layer has that number; give "
                    "0 to {3}",
                    name, read.offset, read.period, read.period - 1));
  }
  return read;
}

}  // namespace

std::string_view jamba_keys() {
  return R"({"vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": null, "hidden_act": "silu", "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "output_router_logits": false,
    "router_aux_loss_coef": 0.001, "num_experts": 16, "num_experts_per_tok": 2,
    "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
    "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_dt_rank": "auto", "mamba_conv_bias": true, "mamba_proj_bias": false})";
}

/// Jamba (Lieber et al. 2024, https://arxiv.org/abs/2403.19887): scans with norms of what they are
/// given, attention without positions in some layers, experts in some.
ModelSpec jamba_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  ModelSpec spec = decoder_model(config, sizes);
  spec.final_norm.name = "model.final_layernorm";
  ExpertsSpec experts = read_experts(config, "num_experts", "num_local_experts");
  experts.hidden = sizes.hidden;
  experts.activation = sizes.activation;
  experts.router = kernels::RouterKind::softmax;
  name_experts(experts);
  experts.gate = "feed_forward.router";
  experts.expert = "feed_forward.experts.{}.";
  experts.stacked = "feed_forward.experts";
  experts.stacked_gate = experts.gate;
  const Period with_attention = read_period(config, "attn_layer");
  const Period with_experts = read_period(config, "expert_layer");
  const auto mixer =
      std::make_shared<const MambaSpec>(hybrid_scan(config, spec.embedding_dim, sizes.eps));
  if (sizes.activation != kernels::ActivationKind::silu) {
    config.refuse("hidden_act: Jamba's convolution and gate have silu here; set it to \"silu\"");
  }
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t index) {
    layer.attention.rope.reset();
    layer.mlp_norms.pre = rms_norm("pre_ff_layernorm", sizes.eps);
    layer.mlp.in = "feed_forward.gate_proj";
    layer.mlp.up = "feed_forward.up_proj";
    layer.mlp.out = "feed_forward.down_proj";
    if (experts.experts > 1 && with_experts.has(index)) {
      layer.experts = experts;
    }
  });
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (!with_attention.has(static_cast<std::int64_t>(layer))) {
      spec.layers[layer].branches.at(0).block = mixer;
    }
  }
  return spec;
}

}  // namespace train::engine
