#include "engine/model/blocks/state_space/mamba_scan.hpp"

#include <algorithm>
#include <utility>

#include "kernels/activation/elementwise.hpp"
#include "kernels/attention/shared_keys.hpp"
#include "kernels/backend.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/state_space/causal_conv.hpp"

namespace train::engine {

MambaScan::MambaScan(const BlockContext& context, const MambaSpec& spec, const Inputs& inputs)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      inputs_(inputs),
      keeps_states_(context.workspace.has_backward()) {
  rates_ = add_parameter(context, spec.rates, {spec.inner, spec.states}, InitKind::log_place, true);
  skip_ = add_parameter(context, spec.skip, {spec.inner}, Initializer::constant(1.0), true);
}

void MambaScan::add_maps(const BlockContext& context) {
  const std::int64_t inner = spec_.inner;
  conv_.emplace(context, spec_.conv,
                CausalConvBlock::Options{.channels = inner,
                                         .taps = spec_.taps,
                                         .bias = spec_.conv_bias,
                                         .x_stride = inputs_.stride});
  select_.emplace(context, spec_.select,
                  LinearBlock::Options{.inputs = inner, .outputs = selected()});
  step_.emplace(
      context, spec_.step,
      LinearBlock::Options{.inputs = spec_.step_rank, .outputs = inner, .init = spec_.step_init});
  step_bias_ = add_parameter(context, spec_.step + ".bias", {inner}, spec_.step_bias_init, true);
  add_norms(context);
  reserve(context);
}

void MambaScan::add_norms(const BlockContext& context) {
  step_norm_.cols = spec_.step_rank;
  b_norm_.cols = c_norm_.cols = spec_.states;
  if (spec_.norms == ScanNorms::none) {
    return;
  }
  const auto add = [&](Norm& norm, const std::string& name, const char* kept) {
    if (spec_.norms == ScanNorms::weighted) {
      norm.weighted.emplace(
          context, name,
          HeadNormBlock::Options{
              .kind = kernels::NormKind::rms, .head_dim = norm.cols, .eps = spec_.norm_eps});
    } else {
      norm.rstd = workspace_->keep(context.prefix, kept, workspace_->rows(), Content::floats);
    }
  };
  add(step_norm_, spec_.step_norm, "step norm.rstd");
  add(b_norm_, spec_.b_norm, "B norm.rstd");
  add(c_norm_, spec_.c_norm, "C norm.rstd");
  no_weights_ = workspace_->share("norms without weights", std::max(spec_.step_rank, spec_.states),
                                  Content::floats);
}

void MambaScan::reserve(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows();
  const auto kept = [&](const char* name, std::int64_t width) {
    return w.keep(context.prefix, name, rows * width);
  };
  const auto scratch = [&](const char* name, std::int64_t width) {
    return w.scratch_backward(Phase::branch, name, rows * width);
  };
  u_ = w.keep_unless_lean(Phase::branch, context.prefix, "scan inputs convolved",
                          rows * spec_.inner);
  raw_step_ = kept("steps' inputs", spec_.step_rank);
  raw_bc_ = kept("B and C", bc_width());
  step_input_ = raw_step_;
  bc_ = raw_bc_;
  if (spec_.norms != ScanNorms::none) {
    step_input_ = w.keep_unless_lean(Phase::branch, context.prefix, "steps' inputs normalised",
                                     rows * spec_.step_rank);
    bc_ =
        w.keep_unless_lean(Phase::branch, context.prefix, "B and C normalised", rows * bc_width());
  }
  delta_ = kept("steps", spec_.inner);
  if (keeps_states_) {
    kept_ = w.keep(context.prefix, "states of chunks",
                   kernels::scan_kept(rows, spec_.inner, spec_.states), Content::floats);
  }
  selection_ = w.scratch(Phase::branch, "selection", rows * selected());
  if (const std::int64_t texts = w.cached_texts(); texts > 0) {
    last_states_ = w.keep_for_texts(context.prefix + "last states",
                                    texts * spec_.states * spec_.inner, Content::floats);
  }
  du_ = scratch("scan inputs' gradient", spec_.inner);
  dbc_ = scratch("gradient of B and C", bc_width());
  dstep_ = scratch("gradient of steps' inputs", spec_.step_rank);
  partial_ =
      w.scratch_backward(Phase::branch, "sums of channels",
                         kernels::scan_partial(rows, spec_.inner, spec_.states), Content::floats);
}

void MambaScan::convolve(const BlockCall& call) const {
  conv_->forward(call, channels(), workspace_->at(u_));
}

void MambaScan::normalise(const BlockCall& call, const Norm& norm, ConstElements x, Elements y,
                          std::int64_t stride) const {
  const kernels::RowLayout layout{stride, 0};
  if (norm.weighted) {
    norm.weighted->forward(call, x, layout, y, layout);
    return;
  }
  kernels_->norm_forward(call.stream, {.kind = kernels::NormKind::rms,
                                       .x = x,
                                       .weight = workspace_->floats_at(no_weights_),
                                       .y = y,
                                       .rstd = workspace_->floats_at(norm.rstd),
                                       .outer = call.lane.rows(),
                                       .cols = norm.cols,
                                       .x_layout = layout,
                                       .y_layout = layout,
                                       .eps = spec_.norm_eps,
                                       .gain_offset = 1.0F,
                                       .dtype = x.dtype});
}

void MambaScan::normalise_backward(const BlockCall& call, const Norm& norm, ConstElements x,
                                   Elements dy, std::int64_t stride) const {
  const kernels::RowLayout layout{stride, 0};
  if (norm.weighted) {
    norm.weighted->backward(call, x, layout, dy, dy, /*accumulate=*/false);
    return;
  }
  kernels_->norm_backward(call.stream, {.kind = kernels::NormKind::rms,
                                        .x = x,
                                        .weight = workspace_->floats_at(no_weights_),
                                        .rstd = workspace_->floats_at(norm.rstd),
                                        .dy = dy,
                                        .dx = dy,
                                        .outer = call.lane.rows(),
                                        .cols = norm.cols,
                                        .x_layout = layout,
                                        .dy_layout = layout,
                                        .dx_layout = layout,
                                        .gain_offset = 1.0F,
                                        .dtype = x.dtype});
}

void MambaScan::normalise_selection(const BlockCall& call) const {
  if (spec_.norms == ScanNorms::none) {
    return;
  }
  if (workspace_->first_use(no_weights_)) {
    kernels_->fill(call.stream, {.out = workspace_->floats_at(no_weights_),
                                 .count = std::max(spec_.step_rank, spec_.states)});
  }
  const Elements raw = workspace_->at(raw_bc_);
  const Elements bc = workspace_->at(bc_);
  normalise(call, step_norm_, workspace_->at(raw_step_), workspace_->at(step_input_),
            spec_.step_rank);
  normalise(call, b_norm_, raw, bc, bc_width());
  normalise(call, c_norm_, raw + spec_.states, bc + spec_.states, bc_width());
}

void MambaScan::select(const BlockCall& call) const {
  const Elements selection = workspace_->at(selection_);
  select_->forward(call, workspace_->at(u_), selection, selected());
  kernels_->split_heads(call.stream, {.x = selection,
                                      .left = workspace_->at(raw_step_),
                                      .right = workspace_->at(raw_bc_),
                                      .rows = call.lane.rows(),
                                      .heads = 1,
                                      .left_dim = spec_.step_rank,
                                      .right_dim = bc_width(),
                                      .left_layout = {spec_.step_rank, 0},
                                      .dtype = selection.dtype});
  normalise_selection(call);
  step_->forward(call, workspace_->at(step_input_), workspace_->at(delta_), spec_.inner);
}

kernels::ScanInputs MambaScan::scan_inputs(const BlockCall& call) const {
  const Elements bc = workspace_->at(bc_);
  return {.rows = document_rows(call.lane),
          .u = workspace_->at(u_),
          .delta = workspace_->at(delta_),
          .b = bc,
          .c = bc + spec_.states,
          .z = gate(),
          .a_log = exact_weights(call.weights, rates_.offset),
          .d = exact_weights(call.weights, skip_.offset),
          .delta_bias = exact_weights(call.weights, step_bias_.offset),
          .channels = spec_.inner,
          .states = spec_.states,
          .u_stride = spec_.inner,
          .delta_stride = spec_.inner,
          .b_stride = bc_width(),
          .z_stride = inputs_.stride};
}

void MambaScan::scan(const BlockCall& call, Elements gated) const {
  kernels_->selective_scan_forward(
      call.stream, {.in = scan_inputs(call),
                    .y = gated,
                    .y_stride = spec_.inner,
                    .kept = keeps_states_ ? workspace_->floats_at(kept_) : nullptr,
                    .states = text_states(call.lane, *workspace_, last_states_, Content::floats),
                    .dtype = gated.dtype});
}

void MambaScan::forward(const BlockCall& call, Elements gated) const {
  convolve(call);
  select(call);
  scan(call, gated);
}

void MambaScan::again_where_lean(const BlockCall& call) const {
  if (workspace_->lean()) {
    convolve(call);
    normalise_selection(call);
  }
}

void MambaScan::scan_backward(const BlockCall& call, Elements gated, Elements dbc) const {
  kernels_->selective_scan_backward(call.stream, {.in = scan_inputs(call),
                                                  .kept = workspace_->floats_at(kept_),
                                                  .y = gated,
                                                  .y_stride = spec_.inner,
                                                  .du = workspace_->at(du_),
                                                  .ddelta = workspace_->at(delta_),
                                                  .dz = gradient_at(inputs_.gate),
                                                  .db = dbc,
                                                  .dc = dbc + spec_.states,
                                                  .da_log = gradient_of(call, rates_),
                                                  .dd = gradient_of(call, skip_),
                                                  .ddelta_bias = gradient_of(call, step_bias_),
                                                  .partial = workspace_->floats_at(partial_),
                                                  .dtype = gated.dtype});
}

void MambaScan::selection_backward(const BlockCall& call, Elements dbc) const {
  const Elements ddelta = workspace_->at(delta_);
  const Elements dstep = workspace_->at(dstep_);
  const Elements selection = workspace_->at(selection_);
  step_->begin_backward(call, ddelta, spec_.inner);
  step_->backward_weight(call, ddelta, spec_.inner, workspace_->at(step_input_));
  step_->backward_input(call, ddelta, spec_.inner, dstep);
  if (spec_.norms != ScanNorms::none) {
    const Elements raw = workspace_->at(raw_bc_);
    normalise_backward(call, step_norm_, workspace_->at(raw_step_), dstep, spec_.step_rank);
    normalise_backward(call, b_norm_, raw, dbc, bc_width());
    normalise_backward(call, c_norm_, raw + spec_.states, dbc + spec_.states, bc_width());
  }
  kernels_->join_heads(call.stream, {.left = dstep,
                                     .right = dbc,
                                     .out = selection,
                                     .rows = call.lane.rows(),
                                     .heads = 1,
                                     .left_dim = spec_.step_rank,
                                     .right_dim = bc_width(),
                                     .left_layout = {spec_.step_rank, 0},
                                     .right_layout = {bc_width(), 0},
                                     .dtype = selection.dtype});
  select_->begin_backward(call, selection, selected());
  select_->backward_weight(call, selection, selected(), workspace_->at(u_));
  select_->backward_input(call, selection, selected(), workspace_->at(du_), /*accumulate=*/true);
}

void MambaScan::backward_scan(const BlockCall& call, Elements gated) const {
  scan_backward(call, gated, workspace_->at(dbc_));
}

void MambaScan::backward_inputs(const BlockCall& call) const {
  selection_backward(call, workspace_->at(dbc_));
  conv_->backward(call, channels(), workspace_->at(du_), gradient_at(inputs_.channels));
}

}  // namespace train::engine
