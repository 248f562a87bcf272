#include "engine/model/architectures/expert_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace train::engine {
ExpertsSpec read_experts(ModelConfig& config, const std::string& count_key, const char* other_key) {
  ExpertsSpec experts;
  if (other_key != nullptr) {
    config.take_alias(other_key, count_key);
  }
  experts.experts = config.size(count_key);
  experts.slots = config.size("num_experts_per_tok");
  const bool balanced = config.flag("output_router_logits");
  const auto coeff = static_cast<float>(config.real("router_aux_loss_coef"));
  if (balanced && coeff > 0.0F) {
    experts.balance = {
        {.kind = kernels::BalanceKind::hf, .scope = kernels::BalanceScope::lane, .coeff = coeff}};
  }
  return experts;
}

ExpertsSpec sigmoid_experts(ModelConfig& config, const DecoderSizes& sizes) {
  ExpertsSpec experts;
  for (const char* const other : {"num_local_experts", "num_experts", "moe_num_experts"}) {
    config.take_alias(other, "n_routed_experts");
  }
  experts.experts = config.size("n_routed_experts");
  experts.slots = config.size("num_experts_per_tok");
  experts.hidden = config.size("moe_intermediate_size");
  experts.activation = sizes.activation;
  experts.router = config.flag("norm_topk_prob") ? kernels::RouterKind::sigmoid_normalised
                                                 : kernels::RouterKind::sigmoid;
  experts.groups = config.size("n_group");
  experts.kept_groups = config.size("topk_group");
  experts.scale = static_cast<float>(config.real("routed_scaling_factor"));
  name_experts(experts);
  experts.choice_bias = "mlp.gate.e_score_correction_bias";
  if (const std::int64_t shared = config.count("n_shared_experts"); shared > 0) {
    constexpr std::int64_t kWidest = std::int64_t{1} << 32;
    if (shared > kWidest / experts.hidden) {
      config.refuse(
          fmt::format("n_shared_experts is {}, of moe_intermediate_size {}: at most {} "
                      "in all",
                      shared, experts.hidden, kWidest));
    }
    experts.shared = {.hidden = std::min(shared, kWidest / experts.hidden) * experts.hidden,
                      .in = "mlp.shared_experts.gate_proj",
                      .up = "mlp.shared_experts.up_proj",
                      .out = "mlp.shared_experts.down_proj"};
  }
  if (const std::string scores = config.text("scoring_func"); scores != "sigmoid") {
    config.refuse(fmt::format(
        "scoring_func is \"{}\": routers of this model_type score by \"sigmoid\"", scores));
  }
  if (const std::string choice = config.text("topk_method"); choice != "noaux_tc") {
    config.refuse(
        fmt::format("topk_method is \"{}\": experts are chosen by \"noaux_tc\" here", choice));
  }
  if (config.size("moe_layer_freq") != 1) {
    config.refuse("moe_layer_freq is not 1: every layer behind the dense ones has experts here");
  }
  return experts;
}

kernels::RouterKind router_of(ModelConfig& config) {
  return config.flag("norm_topk_prob") ? kernels::RouterKind::softmax_normalised
                                       : kernels::RouterKind::softmax;
}

void name_experts(ExpertsSpec& experts) {
  experts.gate = "mlp.gate";
  experts.expert = "mlp.experts.{}.";
  experts.in = "gate_proj";
  experts.up = "up_proj";
  experts.out = "down_proj";
}

SharedExpert shared_expert(std::int64_t hidden) {
  return {.hidden = hidden,
          .gated = true,
          .gate = "mlp.shared_expert_gate",
          .in = "mlp.shared_expert.gate_proj",
          .up = "mlp.shared_expert.up_proj",
          .out = "mlp.shared_expert.down_proj"};
}

std::vector<bool> sparse_layers(ModelConfig& config, std::int64_t layers) {
  const std::int64_t step = config.size("decoder_sparse_step");
  std::vector<bool> sparse;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    sparse.push_back((layer + 1) % step == 0);
  }
  for (const std::int64_t layer : config.layer_numbers("mlp_only_layers")) {
    if (layer < layers) {
      sparse[static_cast<std::size_t>(layer)] = false;
    }
  }
  return sparse;
}

}  // namespace train::engine
