#include "engine/model/architectures/expert_parts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace train::engine {
namespace {}  // namespace

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
