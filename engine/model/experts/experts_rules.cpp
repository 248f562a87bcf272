#include "engine/model/experts/experts_rules.hpp"

#include <string>

#include "engine/model/experts/experts_block.hpp"

namespace train::engine {
namespace {

/// Adds the rules of a matrix that each expert has and that is a part of one tensor: `within` its
/// place there, before the axis of experts.
void add_stack(const ExpertsSpec& spec, const std::string& map, const std::string& stored,
               const AxisSlice& within, std::vector<TensorRule>& rules,
               const char* end = ".weight") {
  for (std::int64_t expert = 0; expert < spec.experts; ++expert) {
    rules.push_back({.parameter = spec.map_name(expert, map) + end,
                     .stored = stored,
                     .within = within,
                     .stack = {.place = expert, .count = spec.experts}});
  }
}

std::vector<TensorRule> stacked_rules(const ExpertsSpec& spec) {
  const std::string gate_up = spec.stacked + ".gate_up_proj";
  const std::int64_t rows = spec.hidden;
  std::vector<TensorRule> rules = {{spec.gate, spec.stacked_gate}};
  add_stack(spec, spec.in, gate_up, {.first = 0, .count = 2 * rows}, rules);
  add_stack(spec, spec.up, gate_up, {.first = rows, .count = 2 * rows}, rules);
  add_stack(spec, spec.out, spec.stacked + ".down_proj", {}, rules);
  return rules;
}

/// Matrices of inputs by outputs, the first two with their columns in turns; biases likewise.
std::vector<TensorRule> fused_rules(const ExpertsSpec& spec) {
  std::vector<TensorRule> rules;
  const auto add = [&](const std::string& map, const std::string& stored, std::int64_t first,
                       std::int64_t in_turns) {
    const auto count = in_turns > 1 ? in_turns * spec.hidden : 0;
    for (std::int64_t expert = 0; expert < spec.experts; ++expert) {
      const std::string name = spec.map_name(expert, map);
      const StackPlace place = {.place = expert, .count = spec.experts};
      rules.push_back({.parameter = name + ".weight",
                       .stored = stored,
                       .order = TensorOrder::transposed,
                       .within = {.axis = 1, .first = first, .count = count},
                       .step = in_turns,
                       .stack = place});
      rules.push_back({.parameter = name + ".bias",
                       .stored = stored + "_bias",
                       .within = {.axis = 0, .first = first, .count = count},
                       .step = in_turns,
                       .stack = place});
    }
  };
  add(spec.in, "mlp.experts.gate_up_proj", 0, 2);
  add(spec.up, "mlp.experts.gate_up_proj", 1, 2);
  add(spec.out, "mlp.experts.down_proj", 0, 1);
  return rules;
}

std::vector<TensorRule> gguf_rules(const ExpertsSpec& spec, const ModelSpec& model,
                                   const BranchSpec& branch) {
  std::vector<TensorRule> rules = {{spec.gate + ".weight", "ffn_gate_inp.weight"},
                                   {spec.gate + ".bias", "ffn_gate_inp.bias"},
                                   {spec.choice_bias, "exp_probs_b.bias"}};
  add_stack(spec, spec.in, "ffn_gate_exps.weight", {}, rules);
  add_stack(spec, spec.up, "ffn_up_exps.weight", {}, rules);
  add_stack(spec, spec.out, "ffn_down_exps.weight", {}, rules);
  if (spec.expert_bias) {
    add_stack(spec, spec.in, "ffn_gate_exps.bias", {}, rules, ".bias");
    add_stack(spec, spec.up, "ffn_up_exps.bias", {}, rules, ".bias");
    add_stack(spec, spec.out, "ffn_down_exps.bias", {}, rules, ".bias");
  }
  if (spec.shared.hidden > 0) {
    rules.push_back({spec.shared.in, "ffn_gate_shexp"});
    rules.push_back({spec.shared.up, "ffn_up_shexp"});
    rules.push_back({spec.shared.out, "ffn_down_shexp"});
  }
  if (spec.shared.gated) {
    rules.push_back({spec.shared.gate, "ffn_gate_inp_shexp"});
  }
  add_norm_rules(branch, {model.gguf_mlp_norm, "post_ffw_norm"}, rules);
  return rules;
}

}  // namespace

std::vector<TensorRule> experts_rules(const ExpertsSpec& spec, const ModelSpec& model,
                                      const BranchSpec& branch, Dialect dialect) {
  return dialect == Dialect::gguf      ? gguf_rules(spec, model, branch)
         : spec.fused                  ? fused_rules(spec)
         : dialect == Dialect::stacked ? stacked_rules(spec)
                                       : std::vector<TensorRule>();
}

}  // namespace train::engine
