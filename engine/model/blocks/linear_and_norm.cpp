#include "engine/model/blocks/linear_and_norm.hpp"

namespace train::engine {

LinearBlock::LinearBlock(const BlockContext& context, const std::string& name, std::int64_t inputs,
                         std::int64_t outputs, InitKind init)
    : kernels_(&context.kernels), inputs_(inputs), outputs_(outputs) {
  weight_ = context.parameters.add({.name = context.prefix + name + ".weight",
                                    .rows = outputs,
                                    .cols = inputs,
                                    .group = ParameterGroup::decay,
                                    .init = init});
}

void LinearBlock::forward(const BlockCall& call, ConstElements x, Elements y,
                          std::int64_t y_stride) const {
  kernels_->matmul(call.stream, {.a = x,
                                 .b = call.weights + weight_,
                                 .c = y,
                                 .m = call.lane.rows(),
                                 .n = outputs_,
                                 .k = inputs_,
                                 .lda = inputs_,
                                 .ldb = inputs_,
                                 .ldc = y_stride,
                                 .transpose_b = true,
                                 .dtype = x.dtype,
                                 .output_dtype = y.dtype});
}

void LinearBlock::backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                 Elements dx, bool accumulate) const {
  kernels_->matmul(call.stream, {.a = dy,
                                 .b = call.weights + weight_,
                                 .c = dx,
                                 .m = call.lane.rows(),
                                 .n = inputs_,
                                 .k = outputs_,
                                 .lda = dy_stride,
                                 .ldb = inputs_,
                                 .ldc = inputs_,
                                 .accumulate = accumulate,
                                 .dtype = dy.dtype,
                                 .output_dtype = dx.dtype});
}

void LinearBlock::backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                  ConstElements x) const {
  kernels_->matmul(call.stream, {.a = dy,
                                 .b = x,
                                 .c = call.gradient + weight_,
                                 .m = outputs_,
                                 .n = inputs_,
                                 .k = call.lane.rows(),
                                 .lda = dy_stride,
                                 .ldb = inputs_,
                                 .ldc = inputs_,
                                 .transpose_a = true,
                                 .dtype = x.dtype});
}

HeadNormBlock::HeadNormBlock(const BlockContext& context, const std::string& name,
                             const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      weight_(context.parameters.add({.name = context.prefix + name + ".weight",
                                      .rows = options.head_dim,
                                      .cols = 1,
                                      .vector = true,
                                      .group = ParameterGroup::no_decay,
                                      .init = InitKind::norm})) {
  const std::int64_t rows = workspace_->rows() * options.heads;
  mean_ = workspace_->keep(context.prefix, name + ".mean", rows, Content::floats);
  rstd_ = workspace_->keep(context.prefix, name + ".rstd", rows, Content::floats);
}

void HeadNormBlock::forward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                            Elements y, kernels::RowLayout y_layout,
                            const kernels::RowRotation& rotation,
                            const kernels::NormResidual& residual) const {
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
                                       .residual = residual,
                                       .rotation = rotation,
                                       .dtype = x.dtype});
}

void HeadNormBlock::backward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                             ConstElements dy, Elements dx, bool accumulate,
                             const kernels::RowRotation& rotation) const {
  kernels_->norm_backward(call.stream, {.kind = options_.kind,
                                        .x = x,
                                        .weight = call.weights + weight_,
                                        .mean = workspace_->floats_at(mean_),
                                        .rstd = workspace_->floats_at(rstd_),
                                        .dy = dy,
                                        .dx = dx,
                                        .dweight = call.gradient + weight_,
                                        .outer = call.lane.rows(),
                                        .inner = options_.heads,
                                        .cols = options_.head_dim,
                                        .x_layout = x_layout,
                                        .dy_layout = x_layout,
                                        .dx_layout = x_layout,
                                        .accumulate_dx = accumulate,
                                        .rotation = rotation,
                                        .dtype = x.dtype});
}

NormBlock::NormBlock(const BlockContext& context, const std::string& name, const Options& options)
    : workspace_(&context.workspace),
      layout_{options.cols, 0},
      norm_(context, name, {.kind = options.kind, .head_dim = options.cols, .eps = options.eps}),
      output_(workspace_->keep_unless_lean(context.prefix, name + ".output",
                                           workspace_->rows() * options.cols)) {}

Elements NormBlock::forward(const BlockCall& call, ConstElements x,
                            const kernels::NormResidual& residual) const {
  norm_.forward(call, x, layout_, output(), layout_, {}, residual);
  return output();
}

}  // namespace train::engine
