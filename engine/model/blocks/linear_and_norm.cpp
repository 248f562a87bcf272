#include "engine/model/blocks/linear_and_norm.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/norm/norm.hpp"

namespace train::engine {
namespace {

ParameterPlace place_bias(const BlockContext& context, const std::string& name,
                          std::int64_t count) {
  return context.parameters.add({.name = context.prefix + name + ".bias",
                                 .shape = {count},
                                 .group = ParameterGroup::no_decay,
                                 .init = Initializer::constant(0.0)});
}

/// True if `next` and its gradient lie `count` elements behind `first`, and both or none train.
bool follows(const ParameterPlace& next, const ParameterPlace& first, std::int64_t count) {
  return next.frozen == first.frozen && next.offset == first.offset + count &&
         (first.frozen || next.gradient == first.gradient + count);
}

}  // namespace

LinearBlock::LinearBlock(const BlockContext& context, const std::string& name,
                         const Options& options)
    : kernels_(&context.kernels), options_(options) {
  std::vector<std::int64_t> shape = {options.outputs, options.inputs};
  if (options.transposed) {
    std::reverse(shape.begin(), shape.end());
  }
  weight_ = context.parameters.add({.name = context.prefix + name + ".weight",
                                    .shape = std::move(shape),
                                    .fan_in = options.inputs,
                                    .group = ParameterGroup::decay,
                                    .init = options.init,
                                    .linear = true,
                                    .muon = !options.router,
                                    .adaptable = true,
                                    .adapted_by_name = options.router});
  if (options.bias && !options.bias_later) {
    bias_ = place_bias(context, name, options.outputs);
  }
  if (context.lora.adapts(context.prefix + name, options.router)) {
    adapter_.emplace(context, name, options.inputs, options.outputs);
  }
}

void LinearBlock::add_bias(const BlockContext& context, const std::string& name) {
  TRAIN_CHECK(options_.bias && options_.bias_later, "{} has its bias", name);
  bias_ = place_bias(context, name, options_.outputs);
}

std::optional<LinearBlock> LinearBlock::side_by_side(std::span<const LinearBlock> layers) {
  if (layers.empty()) {
    return std::nullopt;
  }
  const LinearBlock& first = layers.front();
  const bool plain = std::all_of(layers.begin(), layers.end(), [&](const LinearBlock& layer) {
    return !layer.options_.transposed && !layer.adapter_ &&
           layer.options_.bias == first.options_.bias;
  });
  if (!plain) {
    return std::nullopt;
  }
  LinearBlock all = first;
  for (const LinearBlock& layer : layers.subspan(1)) {
    const std::int64_t before = all.options_.outputs;
    if (!follows(layer.weight_, first.weight_, before * first.options_.inputs) ||
        (first.options_.bias && !follows(layer.bias_, first.bias_, before))) {
      return std::nullopt;
    }
    all.options_.outputs += layer.options_.outputs;
  }
  return all;
}

void LinearBlock::forward(const BlockCall& call, ConstElements x, Elements y,
                          std::int64_t y_stride) const {
  const Options& o = options_;
  kernels_->matmul(call.stream,
                   output_product(sizes(call), x, call.weights + weight_.offset, y, y_stride));
  if (o.bias) {
    kernels_->bias_add(call.stream, {.y = y,
                                     .bias = call.weights + bias_.offset,
                                     .rows = call.lane.rows(),
                                     .cols = o.outputs,
                                     .stride = y_stride,
                                     .dtype = y.dtype});
  }
  if (adapter_ && call.lane.adapters) {
    adapter_->forward(call, x, y, y_stride);
  }
}

void LinearBlock::begin_backward(const BlockCall& call, ConstElements dy,
                                 std::int64_t dy_stride) const {
  if (adapter_) {
    adapter_->begin_backward(call, dy, dy_stride);
  }
}

void LinearBlock::backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                 Elements dx, bool accumulate) const {
  kernels::MatmulParams params =
      input_product(sizes(call), dy, dy_stride, call.weights + weight_.offset, dx);
  params.accumulate = accumulate;
  kernels_->matmul(call.stream, params);
  if (adapter_) {
    adapter_->backward_input(call, dx);
  }
}

void LinearBlock::backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                  ConstElements x) const {
  if (!weight_.frozen) {
    kernels_->matmul(call.stream, weight_product(sizes(call), dy, dy_stride, x,
                                                 call.gradient + weight_.gradient));
  }
  if (adapter_) {
    adapter_->backward_weight(call, dy, dy_stride, x);
  }
  const Options& o = options_;
  if (o.bias && !bias_.frozen) {
    kernels_->bias_gradient(call.stream, {.dy = dy,
                                          .dbias = call.gradient + bias_.gradient,
                                          .rows = call.lane.rows(),
                                          .cols = o.outputs,
                                          .stride = dy_stride,
                                          .dtype = dy.dtype});
  }
}

void LinearBlock::part_forward(const BlockCall& call, const LinearPart& part, ConstElements x,
                               Elements y) const {
  const Options& o = options_;
  TRAIN_CHECK(!o.bias && !o.transposed && part.first + part.count <= o.outputs);
  ConstElements weight = call.weights + weight_.offset + part.first * o.inputs;
  kernels::MatmulParams product =
      output_product({call.lane.rows(), o.inputs, part.count, false}, x, weight, y, part.y_stride);
  product.lda = part.x_stride;
  kernels_->matmul(call.stream, product);
  if (adapter_ && call.lane.adapters) {
    adapter_->part_forward(call, part, x, y);
  }
}

void LinearBlock::part_input(const BlockCall& call, const LinearPart& part, ConstElements x,
                             Elements y) const {
  const Options& o = options_;
  TRAIN_CHECK(!o.bias && !o.transposed && part.first + part.count <= o.outputs);
  ConstElements weight = call.weights + weight_.offset + part.first * o.inputs;
  kernels::MatmulParams product =
      input_product({call.lane.rows(), o.inputs, part.count, false}, x, part.x_stride, weight, y);
  product.ldc = part.y_stride;
  kernels_->matmul(call.stream, product);
  if (adapter_ && call.lane.adapters) {
    adapter_->part_input(call, part, x, y);
  }
}

HeadNormBlock::HeadNormBlock(const BlockContext& context, const std::string& name,
                             const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      weight_(
          context.parameters.add({.name = context.prefix + name + ".weight",
                                  .shape = {options.head_dim},
                                  .group = ParameterGroup::no_decay,
                                  .init = Initializer::constant(options.plus_one ? 0.0 : 1.0)})) {
  if (options.bias) {
    bias_ = place_bias(context, name, options.head_dim);
  }
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
                                       .weight = call.weights + weight_.offset,
                                       .y = y,
                                       .mean = workspace_->floats_at(mean_),
                                       .rstd = workspace_->floats_at(rstd_),
                                       .outer = call.lane.rows(),
                                       .inner = options_.heads,
                                       .cols = options_.head_dim,
                                       .x_layout = x_layout,
                                       .y_layout = y_layout,
                                       .eps = options_.eps,
                                       .gain_offset = options_.plus_one ? 1.0F : 0.0F,
                                       .residual = residual,
                                       .rotation = rotation,
                                       .dtype = x.dtype});
  if (options_.bias) {
    kernels_->bias_add(call.stream, {.y = y,
                                     .bias = call.weights + bias_.offset,
                                     .rows = call.lane.rows(),
                                     .cols = options_.head_dim,
                                     .stride = y_layout.outer_stride,
                                     .dtype = y.dtype});
  }
}

void HeadNormBlock::backward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                             ConstElements dy, Elements dx, bool accumulate,
                             const kernels::RowRotation& rotation) const {
  if (options_.bias && !bias_.frozen) {  // before dx, which may be dy
    kernels_->bias_gradient(call.stream, {.dy = dy,
                                          .dbias = call.gradient + bias_.gradient,
                                          .rows = call.lane.rows(),
                                          .cols = options_.head_dim,
                                          .stride = x_layout.outer_stride,
                                          .dtype = dy.dtype});
  }
  kernels_->norm_backward(call.stream,
                          {.kind = options_.kind,
                           .x = x,
                           .weight = call.weights + weight_.offset,
                           .mean = workspace_->floats_at(mean_),
                           .rstd = workspace_->floats_at(rstd_),
                           .dy = dy,
                           .dx = dx,
                           .dweight = weight_.frozen ? nullptr : call.gradient + weight_.gradient,
                           .outer = call.lane.rows(),
                           .inner = options_.heads,
                           .cols = options_.head_dim,
                           .x_layout = x_layout,
                           .dy_layout = x_layout,
                           .dx_layout = x_layout,
                           .gain_offset = options_.plus_one ? 1.0F : 0.0F,
                           .accumulate_dx = accumulate,
                           .rotation = rotation,
                           .dtype = x.dtype});
}

HeadNormBlock::Options row_norm(const NormSpec& spec, std::int64_t cols) {
  return {.kind = spec.kind,
          .heads = 1,
          .head_dim = cols,
          .eps = spec.eps,
          .plus_one = spec.plus_one,
          .bias = spec.bias};
}

NormBlock::NormBlock(const BlockContext& context, const NormSpec& spec, std::int64_t cols,
                     Phase phase)
    : workspace_(&context.workspace),
      layout_{cols, 0},
      norm_(context, spec.name, row_norm(spec, cols)),
      output_(workspace_->keep_unless_lean(
          phase, context.prefix, workspace_->lean() ? "norm output" : spec.name + ".output",
          workspace_->rows() * cols)) {}

Elements NormBlock::forward(const BlockCall& call, ConstElements x,
                            const kernels::NormResidual& residual) const {
  norm_.forward(call, x, layout_, output(), layout_, {}, residual);
  return output();
}

PostNormBlock::PostNormBlock(const BlockContext& context, const NormSpec& spec, std::int64_t cols)
    : workspace_(&context.workspace),
      layout_{cols, 0},
      input_(workspace_->keep(context.prefix, spec.name + ".input", workspace_->rows() * cols)),
      norm_(context, spec.name, row_norm(spec, cols)),
      gradient_(workspace_->scratch_backward(Phase::block, "post norm gradient",
                                             workspace_->rows() * cols)) {}

void PostNormBlock::forward(const BlockCall& call, Elements y) const {
  norm_.forward(call, input(), layout_, y, layout_);
}

Elements PostNormBlock::backward(const BlockCall& call, ConstElements dy) const {
  const Elements gradient = workspace_->at(gradient_);
  norm_.backward(call, input(), layout_, dy, gradient, /*accumulate=*/false);
  return gradient;
}

}  // namespace train::engine
