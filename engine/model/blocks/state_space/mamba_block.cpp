#include "engine/model/blocks/state_space/mamba_block.hpp"

#include <fmt/format.h>

#include "base/check.hpp"

namespace train::engine {

std::unique_ptr<Block> MambaSpec::make(const BlockContext& context, const ModelSpec& model) const {
  return std::make_unique<MambaBlock>(context, *this, model);
}

std::string MambaSpec::sizes() const {
  return fmt::format("{} channels of {} states", inner, states);
}

std::string MambaSpec::describe() const {
  static constexpr const char* kNorms[] = {"", ", norms without weights", ", norms"};
  return fmt::format("{}, convolution of {}, steps of rank {}{}{}; a text's state {} bytes a layer",
                     sizes(), taps, step_rank, kNorms[static_cast<std::size_t>(norms)],
                     bias ? ", biases" : "", 4 * inner * (states + taps - 1));
}

std::string MambaSpec::mistake() const {
  if (states < 1 || states > kernels::kMostScanStates) {
    return fmt::format("state_size (mamba_d_state) is {}: a channel has 1 to {} states here",
                       states, kernels::kMostScanStates);
  }
  return taps_mistake();
}

// The convolution's products and sums; of each state its rate, its decay, two products and a sum of
// h, and a product and a sum of the output.
double MambaSpec::score_flops(std::int64_t /*seq_len*/) const {
  constexpr std::int64_t of_state = 7;
  return static_cast<double>(inner * (2 * taps + of_state * states));
}

std::vector<TensorRule> MambaSpec::tensor_rules(const ModelSpec& /*model*/,
                                                const BranchSpec& branch, Dialect dialect) const {
  if (dialect != Dialect::gguf) {
    return {};
  }
  std::vector<TensorRule> rules = gguf_rules(branch, inner);
  rules.insert(rules.end(), {{select, "ssm_x"},
                             {step, "ssm_dt"},
                             {.parameter = rates, .stored = "ssm_a", .as = StoredAs::rate},
                             {skip, "ssm_d"}});
  if (norms == ScanNorms::weighted) {
    rules.insert(rules.end(),
                 {{step_norm, "ssm_dt_norm"}, {b_norm, "ssm_b_norm"}, {c_norm, "ssm_c_norm"}});
  }
  return rules;
}

MambaBlock::MambaBlock(const BlockContext& context, const MambaSpec& spec, const ModelSpec& model)
    : workspace_(&context.workspace), inner_(spec.inner), embedding_dim_(model.embedding_dim) {
  TRAIN_CHECK(!model.transposed_linears);
  inputs_ =
      workspace_->keep(context.prefix, "scan inputs and gates", workspace_->rows() * 2 * inner_);
  gated_ = workspace_->scratch(Phase::branch, "scanned and gated", workspace_->rows() * inner_);
  scan_.emplace(context, spec,
                MambaScan::Inputs{
                    .slot = inputs_, .gradient = inputs_, .gate = inner_, .stride = 2 * inner_});
  in_.emplace(
      context, spec.in,
      LinearBlock::Options{.inputs = embedding_dim_, .outputs = 2 * inner_, .bias = spec.bias});
  scan_->add_maps(context);
  out_.emplace(context, spec.out,
               LinearBlock::Options{.inputs = inner_,
                                    .outputs = embedding_dim_,
                                    .init = InitKind::residual_output,
                                    .bias = spec.bias});
}

void MambaBlock::forward_kept(const BlockCall& call, ConstElements x) {
  in_->forward(call, x, workspace_->at(inputs_), 2 * inner_);
  scan_->forward(call, workspace_->at(gated_));
}

// The scan's output is still there: forward_kept() has just left it.
void MambaBlock::forward_output(const BlockCall& call, Elements branch) {
  out_->forward(call, workspace_->at(gated_), branch, embedding_dim_);
}

void MambaBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                          Elements dx) {
  const Elements gated = workspace_->at(gated_);
  scan_->again_where_lean(call);
  out_->begin_backward(call, dbranch, embedding_dim_);
  out_->backward_input(call, dbranch, embedding_dim_, gated);
  scan_->backward_scan(call, gated);
  out_->backward_weight(call, dbranch, embedding_dim_, gated);
  scan_->backward_inputs(call);
  const Elements dinputs = workspace_->at(inputs_);  // In the inputs' place.
  in_->begin_backward(call, dinputs, 2 * inner_);
  in_->backward_weight(call, dinputs, 2 * inner_, x);
  in_->backward_input(call, dinputs, 2 * inner_, dx);
}

}  // namespace train::engine
