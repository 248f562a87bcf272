#include "engine/model/blocks/state_space/mamba2_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/backend.hpp"
#include "kernels/state_space/causal_conv.hpp"
#include "kernels/state_space/gated_norm.hpp"

namespace train::engine {

std::unique_ptr<Block> Mamba2Spec::make(const BlockContext& context, const ModelSpec& model) const {
  return std::make_unique<Mamba2Block>(context, *this, model);
}

std::string Mamba2Spec::sizes() const {
  return fmt::format("{} heads of {} with {} states", heads, width, states);
}

std::string Mamba2Spec::describe() const {
  std::string text = fmt::format("{}, {} group{} of B and C, convolution of {}", sizes(), groups,
                                 groups == 1 ? "" : "s", taps);
  if (least_step > 0.0F || most_step < std::numeric_limits<float>::infinity()) {
    text += fmt::format(", steps from {:.6g} to {:.6g}", least_step, most_step);
  }
  return text + fmt::format("{}; a text's state {} bytes a layer", bias ? ", biases" : "",
                            4 * (inner() * states + conv_width() * (taps - 1)));
}

std::string Mamba2Spec::mistake() const {
  if (states < 1 || states > kernels::kMostHeadStates || width < 1 ||
      width > kernels::kMostHeadWidth) {
    return fmt::format(
        "head_dim is {} and state_size {}: a head has up to {} channels of {} states here", width,
        states, kernels::kMostHeadWidth, kernels::kMostHeadStates);
  }
  return heads % groups == 0
             ? taps_mistake()
             : fmt::format("num_heads {} is not a multiple of n_groups {}", heads, groups);
}

// The convolution's products and sums; of each state two products and a sum of
// S, a product and a sum of the output.
double Mamba2Spec::score_flops(std::int64_t /*seq_len*/) const {
  constexpr std::int64_t of_state = 5;
  return static_cast<double>(conv_width() * 2 * taps + of_state * inner() * states);
}

std::vector<TensorRule> Mamba2Spec::tensor_rules(const ModelSpec& /*model*/,
                                                 const BranchSpec& branch, Dialect dialect) const {
  if (dialect != Dialect::gguf) {
    return {};
  }
  std::vector<TensorRule> rules = gguf_rules(branch, conv_width());
  rules.insert(rules.end(),
               {{step_bias, "ssm_dt.bias"},
                {.parameter = norm + ".weight",
                 .stored = "ssm_norm.weight",
                 .shape = {groups, inner() / groups}},
                {.parameter = rates, .stored = "ssm_a", .as = StoredAs::rate, .shape = {heads, 1}},
                {.parameter = skip, .stored = "ssm_d", .shape = {heads, 1}}});
  return rules;
}

Mamba2Block::Mamba2Block(const BlockContext& context, const Mamba2Spec& spec,
                         const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      embedding_dim_(model.embedding_dim),
      keeps_states_(context.workspace.has_backward()) {
  TRAIN_CHECK(!model.transposed_linears);
  add_parameters(context);
  reserve(context);
}

void Mamba2Block::add_parameters(const BlockContext& context) {
  const auto exact = [&](const std::string& name, std::vector<std::int64_t> shape,
                         Initializer init) {
    return add_parameter(context, name, std::move(shape), init, true);
  };
  step_bias_ = exact(spec_.step_bias, {spec_.heads}, spec_.step_bias_init);
  rates_ = exact(spec_.rates, {spec_.heads}, InitKind::log_place);
  skip_ = exact(spec_.skip, {spec_.heads}, Initializer::constant(1.0));
  conv_.emplace(context, spec_.conv,
                CausalConvBlock::Options{.channels = spec_.conv_width(),
                                         .taps = spec_.taps,
                                         .bias = spec_.conv_bias,
                                         .x_stride = projected()});
  in_.emplace(
      context, spec_.in,
      LinearBlock::Options{.inputs = embedding_dim_, .outputs = projected(), .bias = spec_.bias});
  norm_ = add_parameter(context, spec_.norm + ".weight", {spec_.inner()},
                        Initializer::constant(1.0), false);
  out_.emplace(context, spec_.out,
               LinearBlock::Options{.inputs = spec_.inner(),
                                    .outputs = embedding_dim_,
                                    .init = InitKind::residual_output,
                                    .bias = spec_.bias});
}

void Mamba2Block::reserve(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows();
  projected_ = w.keep(context.prefix, "gates, scan inputs and steps", rows * projected());
  convolved_ = w.keep_unless_lean(Phase::branch, context.prefix, "scan inputs convolved",
                                  rows * spec_.conv_width());
  scanned_ = w.keep(context.prefix, "scanned", rows * spec_.inner());
  rstd_ = w.keep(context.prefix, "gated norm.rstd", rows * spec_.groups, Content::floats);
  const std::int64_t state = spec_.inner() * spec_.states;
  if (keeps_states_) {
    kept_ = w.keep(context.prefix, "states of chunks", kernels::head_scan_kept(rows, state),
                   Content::floats);
  }
  normed_ = w.scratch(Phase::branch, "scanned, gated and normalised", rows * spec_.inner());
  if (const std::int64_t texts = w.cached_texts(); texts > 0) {
    last_states_ = w.keep_for_texts(context.prefix + "last states", texts * state, Content::floats);
  }
  dconvolved_ =
      w.scratch_backward(Phase::branch, "scan inputs' gradient", rows * spec_.conv_width());
  partial_ = w.scratch_backward(Phase::branch, "sums of heads",
                                kernels::head_scan_partial(rows, spec_.heads, spec_.states),
                                Content::floats);
}

void Mamba2Block::convolve(const BlockCall& call) const {
  conv_->forward(call, conv_inputs(), workspace_->at(convolved_));
}

kernels::HeadScanInputs Mamba2Block::scan_inputs(const BlockCall& call) const {
  const Elements convolved = workspace_->at(convolved_);
  return {.rows = document_rows(call.lane),
          .x = convolved,
          .b = convolved + spec_.inner(),
          .c = convolved + spec_.inner() + spec_.groups * spec_.states,
          .delta = steps(),
          .a_log = exact_weights(call.weights, rates_.offset),
          .d = exact_weights(call.weights, skip_.offset),
          .delta_bias = exact_weights(call.weights, step_bias_.offset),
          .heads = spec_.heads,
          .groups = spec_.groups,
          .width = spec_.width,
          .states = spec_.states,
          .x_stride = spec_.conv_width(),
          .delta_stride = projected(),
          .least_step = spec_.least_step,
          .most_step = spec_.most_step};
}

void Mamba2Block::forward_kept(const BlockCall& call, ConstElements x) {
  in_->forward(call, x, workspace_->at(projected_), projected());
  convolve(call);
  const Elements scanned = workspace_->at(scanned_);
  kernels_->head_scan_forward(
      call.stream, {.in = scan_inputs(call),
                    .y = scanned,
                    .y_stride = spec_.inner(),
                    .kept = keeps_states_ ? workspace_->floats_at(kept_) : nullptr,
                    .states = text_states(call.lane, *workspace_, last_states_, Content::floats),
                    .dtype = scanned.dtype});
  normalise(call);
}

void Mamba2Block::normalise(const BlockCall& call) const {
  const Elements normed = workspace_->at(normed_);
  kernels_->gated_norm_forward(call.stream, {.y = workspace_->at(scanned_),
                                             .z = gates(),
                                             .weight = call.weights + norm_.offset,
                                             .out = normed,
                                             .rstd = workspace_->floats_at(rstd_),
                                             .rows = call.lane.rows(),
                                             .cols = spec_.inner(),
                                             .groups = spec_.groups,
                                             .y_stride = spec_.inner(),
                                             .z_stride = projected(),
                                             .eps = spec_.norm_eps,
                                             .dtype = normed.dtype});
}

// The norm's output is still there: forward_kept() has just left it.
void Mamba2Block::forward_output(const BlockCall& call, Elements branch) {
  out_->forward(call, workspace_->at(normed_), branch, embedding_dim_);
}

void Mamba2Block::normalise_backward(const BlockCall& call) const {
  const Elements normed = workspace_->at(normed_);
  const Elements scanned = workspace_->at(scanned_);
  kernels_->gated_norm_backward(call.stream, {.y = scanned,
                                              .z = gates(),
                                              .weight = call.weights + norm_.offset,
                                              .rstd = workspace_->floats_at(rstd_),
                                              .out = normed,
                                              .dy = scanned,
                                              .dz = gates(),
                                              .dweight = gradient_of(call, norm_),
                                              .rows = call.lane.rows(),
                                              .cols = spec_.inner(),
                                              .groups = spec_.groups,
                                              .y_stride = spec_.inner(),
                                              .z_stride = projected(),
                                              .dtype = normed.dtype});
}

void Mamba2Block::scan_backward(const BlockCall& call) const {
  const Elements dconvolved = workspace_->at(dconvolved_);
  kernels_->head_scan_backward(call.stream,
                               {.in = scan_inputs(call),
                                .kept = workspace_->floats_at(kept_),
                                .dy = workspace_->at(scanned_),
                                .y_stride = spec_.inner(),
                                .dx = dconvolved,
                                .db = dconvolved + spec_.inner(),
                                .dc = dconvolved + spec_.inner() + spec_.groups * spec_.states,
                                .dx_stride = spec_.conv_width(),
                                .ddelta = steps(),
                                .da_log = gradient_of(call, rates_),
                                .dd = gradient_of(call, skip_),
                                .ddelta_bias = gradient_of(call, step_bias_),
                                .partial = workspace_->floats_at(partial_),
                                .dtype = dconvolved.dtype});
}

void Mamba2Block::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                           Elements dx) {
  const Elements normed = workspace_->at(normed_);
  if (workspace_->lean()) {
    convolve(call);
  }
  out_->begin_backward(call, dbranch, embedding_dim_);
  out_->backward_input(call, dbranch, embedding_dim_, normed);
  normalise_backward(call);
  out_->backward_weight(call, dbranch, embedding_dim_, normed);
  scan_backward(call);
  conv_->backward(call, conv_inputs(), workspace_->at(dconvolved_), conv_inputs());
  const Elements dprojected = workspace_->at(projected_);  // In the projection's place.
  in_->begin_backward(call, dprojected, projected());
  in_->backward_weight(call, dprojected, projected(), x);
  in_->backward_input(call, dprojected, projected(), dx);
}

}  // namespace train::engine
