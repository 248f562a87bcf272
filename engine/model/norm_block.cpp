#include "engine/model/norm_block.hpp"

namespace train::engine {
namespace {

std::int64_t add_weight(const BlockContext& context, const std::string& name, std::int64_t count) {
  return context.parameters.add({.name = context.prefix + name + ".weight",
                                 .rows = count,
                                 .cols = 1,
                                 .vector = true,
                                 .group = ParameterGroup::no_decay,
                                 .init = InitKind::norm});
}

}  // namespace

NormBlock::NormBlock(const BlockContext& context, const std::string& name, const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      weight_(add_weight(context, name, options.cols)) {
  const std::int64_t rows = workspace_->rows();
  output_ = workspace_->keep_unless_lean(context.prefix, name + ".output", rows * options.cols);
  mean_ = workspace_->keep(context.prefix, name + ".mean", rows);
  rstd_ = workspace_->keep(context.prefix, name + ".rstd", rows);
}

float* NormBlock::forward(const BlockCall& call, const float* x) const {
  return normalise(call, x, {});
}

float* NormBlock::forward(const BlockCall& call, const kernels::NormResidual& residual) const {
  return normalise(call, residual.sum, residual);
}

float* NormBlock::normalise(const BlockCall& call, const float* x,
                            const kernels::NormResidual& residual) const {
  const kernels::RowLayout layout{options_.cols, 0};
  kernels_->norm_forward(call.stream, {.kind = options_.kind,
                                       .x = x,
                                       .weight = call.weights + weight_,
                                       .y = output(),
                                       .mean = workspace_->at(mean_),
                                       .rstd = workspace_->at(rstd_),
                                       .outer = call.lane.rows(),
                                       .inner = 1,
                                       .cols = options_.cols,
                                       .x_layout = layout,
                                       .y_layout = layout,
                                       .eps = options_.eps,
                                       .residual = residual});
  return output();
}

void NormBlock::backward(const BlockCall& call, const float* x, const float* dy, float* dx,
                         bool accumulate) const {
  const kernels::RowLayout layout{options_.cols, 0};
  kernels_->norm_backward(call.stream, {.kind = options_.kind,
                                        .x = x,
                                        .weight = call.weights + weight_,
                                        .mean = workspace_->at(mean_),
                                        .rstd = workspace_->at(rstd_),
                                        .dy = dy,
                                        .dx = dx,
                                        .dweight = call.gradient + weight_,
                                        .outer = call.lane.rows(),
                                        .inner = 1,
                                        .cols = options_.cols,
                                        .x_layout = layout,
                                        .dy_layout = layout,
                                        .dx_layout = layout,
                                        .accumulate_dx = accumulate});
}

HeadNormBlock::HeadNormBlock(const BlockContext& context, const std::string& name,
                             const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      weight_(add_weight(context, name, options.head_dim)) {
  const std::int64_t rows = workspace_->rows() * options.heads;
  mean_ = workspace_->keep(context.prefix, name + ".mean", rows);
  rstd_ = workspace_->keep(context.prefix, name + ".rstd", rows);
}

void HeadNormBlock::forward(const BlockCall& call, const float* x, kernels::RowLayout x_layout,
                            float* y, kernels::RowLayout y_layout,
                            const kernels::RowRotation& rotation) const {
  kernels_->norm_forward(call.stream, {.kind = options_.kind,
                                       .x = x,
                                       .weight = call.weights + weight_,
                                       .y = y,
                                       .mean = workspace_->at(mean_),
                                       .rstd = workspace_->at(rstd_),
                                       .outer = call.lane.rows(),
                                       .inner = options_.heads,
                                       .cols = options_.head_dim,
                                       .x_layout = x_layout,
                                       .y_layout = y_layout,
                                       .eps = options_.eps,
                                       .rotation = rotation});
}

void HeadNormBlock::backward(const BlockCall& call, const float* x, kernels::RowLayout x_layout,
                             float* d, const kernels::RowRotation& rotation) const {
  kernels_->norm_backward(call.stream, {.kind = options_.kind,
                                        .x = x,
                                        .weight = call.weights + weight_,
                                        .mean = workspace_->at(mean_),
                                        .rstd = workspace_->at(rstd_),
                                        .dy = d,
                                        .dx = d,
                                        .dweight = call.gradient + weight_,
                                        .outer = call.lane.rows(),
                                        .inner = options_.heads,
                                        .cols = options_.head_dim,
                                        .x_layout = x_layout,
                                        .dy_layout = x_layout,
                                        .dx_layout = x_layout,
                                        .rotation = rotation});
}

}  // namespace train::engine
