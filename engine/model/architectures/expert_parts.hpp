#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/config_json/model_config.hpp"
#include "engine/model/experts/experts_block.hpp"

namespace train::engine {

/// Settings of a config.json that the experts of all layers share: their number under `count_key`
/// or `other_key` (nullptr: none), num_experts_per_tok, and the term that balances them:
/// transformers' of router_aux_loss_coef, where output_router_logits makes it part of the loss.
/// Hidden size, names and the shared expert are the family's.
[[nodiscard]] ExpertsSpec read_experts(ModelConfig& config, const std::string& count_key,
                                       const char* other_key);

/// By norm_topk_prob.
[[nodiscard]] kernels::RouterKind router_of(ModelConfig& config);

/// Experts of DeepSeek-V3's kind: n_routed_experts (or its aliases) of moe_intermediate_size,
/// chosen by sigmoids with a correction bias in n_group groups, and n_shared_experts as one wide
/// MLP. Refuses other scores and choices.
[[nodiscard]] ExpertsSpec sigmoid_experts(ModelConfig& config, const DecoderSizes& sizes);

/// Names of experts below "mlp.": gate, experts.{}.gate_proj, up_proj and down_proj.
void name_experts(ExpertsSpec& experts);

/// Qwen2's: a gated one of `hidden`, names below "mlp.".
[[nodiscard]] SharedExpert shared_expert(std::int64_t hidden);

/// True for each layer that has experts: every decoder_sparse_step-th of those that mlp_only_layers
/// does not list.
[[nodiscard]] std::vector<bool> sparse_layers(ModelConfig& config, std::int64_t layers);

}  // namespace train::engine
