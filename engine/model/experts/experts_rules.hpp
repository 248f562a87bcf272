#pragma once

#include <vector>

#include "engine/model/tensor_map.hpp"

namespace train::engine {

struct ExpertsSpec;
struct ModelSpec;

/// How files of a dialect have a layer's experts and the norms of its branch.
///   hf       a tensor for each matrix of each expert, by the spec's own names
///   stacked  mlp.experts.gate_up_proj [experts, 2 hidden, width], gates first, and down_proj
///            [experts, width, hidden], as transformers 5 has them in memory
///   gguf     ffn_gate_exps, ffn_up_exps [experts, hidden, width], ffn_down_exps [experts, width,
///            hidden] and their biases, the shared expert in tensors called shexp
[[nodiscard]] std::vector<TensorRule> experts_rules(const ExpertsSpec& spec, const ModelSpec& model,
                                                    const BranchSpec& branch, Dialect dialect);

}  // namespace train::engine
