#include "engine/model/blocks/norm_block.hpp"

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
  mean_ = workspace_->keep(context.prefix, name + ".mean", rows, Content::floats);
  rstd_ = workspace_->keep(context.prefix, name + ".rstd", rows, Content::floats);
}

Elements NormBlock::forward(const BlockCall& call, ConstElements x) const {
  return normalise(call, x, {});
}

Elements NormBlock::forward(const BlockCall& call, const Residual& residual) const {
  return normalise(call, residual.sum, residual);
}

Elements NormBlock::normalise(const BlockCall& call, ConstElements x,
                              const Residual& residual) const {
  const kernels::RowLayout layout{options_.cols, 0};
  kernels_->norm_forward(call.stream, {.kind = options_.kind,
                                       .x = x,
                                       .weight = call.weights + weight_,
                                       .y = output(),
                                       .mean = workspace_->floats_at(mean_),
                                       .rstd = workspace_->floats_at(rstd_),
                                       .outer = call.lane.rows(),
                                       .inner = 1,
                                       .cols = options_.cols,
                                       .x_layout = layout,
                                       .y_layout = layout,
                                       .eps = options_.eps,
                                       .residual = {.base = residual.base,
                                                    .branch = residual.branch,
                                                    .sum = residual.sum,
                                                    .scale = residual.scale},
                                       .dtype = x.dtype});
  return output();
}

void NormBlock::backward(const BlockCall& call, ConstElements x, ConstElements dy, Elements dx,
                         bool accumulate) const {
  const kernels::RowLayout layout{options_.cols, 0};
  kernels_->norm_backward(call.stream, {.kind = options_.kind,
                                        .x = x,
                                        .weight = call.weights + weight_,
                                        .mean = workspace_->floats_at(mean_),
                                        .rstd = workspace_->floats_at(rstd_),
                                        .dy = dy,
                                        .dx = dx,
                                        .dweight = call.gradient + weight_,
                                        .outer = call.lane.rows(),
                                        .inner = 1,
                                        .cols = options_.cols,
                                        .x_layout = layout,
                                        .dy_layout = layout,
                                        .dx_layout = layout,
                                        .accumulate_dx = accumulate,
                                        .dtype = x.dtype});
}

HeadNormBlock::HeadNormBlock(const BlockContext& context, const std::string& name,
                             const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      weight_(add_weight(context, name, options.head_dim)) {
  const std::int64_t rows = workspace_->rows() * options.heads;
  mean_ = workspace_->keep(context.prefix, name + ".mean", rows, Content::floats);
  rstd_ = workspace_->keep(context.prefix, name + ".rstd", rows, Content::floats);
}

void HeadNormBlock::forward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                            Elements y, kernels::RowLayout y_layout,
                            const kernels::RowRotation& rotation) const {
  kernels_->norm_forward(call.stream, {.kind = options_.kind,
                                       .x = x,
                                       .weight = call.weights + weight_,
                                       .y = y,
                                       .mean = workspace_->floats_at(mean_),
                                       .rstd = workspace_->floats_at(rstd_),
                                       .outer = call.lane.rows(),
                                       .inner = options_.heads,
                                       .cols = options_.head_dim,
                                       .x_layout = x_layout,
                                       .y_layout = y_layout,
                                       .eps = options_.eps,
                                       .rotation = rotation,
                                       .dtype = x.dtype});
}

void HeadNormBlock::backward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                             Elements d, const kernels::RowRotation& rotation) const {
  kernels_->norm_backward(call.stream, {.kind = options_.kind,
                                        .x = x,
                                        .weight = call.weights + weight_,
                                        .mean = workspace_->floats_at(mean_),
                                        .rstd = workspace_->floats_at(rstd_),
                                        .dy = d,
                                        .dx = d,
                                        .dweight = call.gradient + weight_,
                                        .outer = call.lane.rows(),
                                        .inner = options_.heads,
                                        .cols = options_.head_dim,
                                        .x_layout = x_layout,
                                        .dy_layout = x_layout,
                                        .dx_layout = x_layout,
                                        .rotation = rotation,
                                        .dtype = x.dtype});
}

}  // namespace train::engine
