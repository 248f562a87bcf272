#include "engine/model/blocks/adapter_block.hpp"

#include <cmath>

namespace train::engine {

AdapterBlock::AdapterBlock(const BlockContext& context, const std::string& name,
                           std::int64_t inputs, std::int64_t outputs)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      inputs_(inputs),
      outputs_(outputs),
      rank_(context.lora.rank),
      scale_(context.lora.scale()) {
  const std::string module = context.prefix + name;
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  a_ = context.parameters.add({.name = module + ".lora_A.weight",
                               .shape = {rank_, inputs},
                               .fan_in = inputs,
                               .group = ParameterGroup::decay,
                               .init = Initializer::uniform(-bound, bound),
                               .linear = true,
                               .muon = true,
                               .adapter = true});
  b_ = context.parameters.add({.name = module + ".lora_B.weight",
                               .shape = {outputs, rank_},
                               .fan_in = rank_,
                               .group = ParameterGroup::decay,
                               .init = Initializer::constant(0.0),
                               .linear = true,
                               .muon = true,
                               .adapter = true});
  const std::int64_t count = workspace_->rows() * rank_;
  inner_ = workspace_->scratch(Phase::block, "adapter inner", count);
  gradient_ = workspace_->scratch_backward(Phase::block, name + " adapter gradient", count);
}

void AdapterBlock::scale(const BlockCall& call, Elements values) const {
  if (scale_ == 1.0F) {
    return;
  }
  kernels_->scale(call.stream, {.x = values,
                                .y = values,
                                .scale = scale_,
                                .count = call.lane.rows() * rank_,
                                .dtype = values.dtype});
}

Elements AdapterBlock::inner(const BlockCall& call, ConstElements x) const {
  const Elements u = workspace_->at(inner_);
  kernels_->matmul(call.stream, {.a = x,
                                 .b = call.weights + a_.offset,
                                 .c = u,
                                 .m = call.lane.rows(),
                                 .n = rank_,
                                 .k = inputs_,
                                 .lda = inputs_,
                                 .ldb = inputs_,
                                 .ldc = rank_,
                                 .transpose_b = true,
                                 .dtype = x.dtype,
                                 .output_dtype = u.dtype});
  scale(call, u);
  return u;
}

void AdapterBlock::forward(const BlockCall& call, ConstElements x, Elements y,
                           std::int64_t y_stride) const {
  const Elements u = inner(call, x);
  kernels_->matmul(call.stream, {.a = u,
                                 .b = call.weights + b_.offset,
                                 .c = y,
                                 .m = call.lane.rows(),
                                 .n = outputs_,
                                 .k = rank_,
                                 .lda = rank_,
                                 .ldb = rank_,
                                 .ldc = y_stride,
                                 .transpose_b = true,
                                 .accumulate = true,
                                 .dtype = u.dtype,
                                 .output_dtype = y.dtype});
}

void AdapterBlock::begin_backward(const BlockCall& call, ConstElements dy,
                                  std::int64_t dy_stride) const {
  const Elements du = workspace_->at(gradient_);
  kernels_->matmul(call.stream, {.a = dy,
                                 .b = call.weights + b_.offset,
                                 .c = du,
                                 .m = call.lane.rows(),
                                 .n = rank_,
                                 .k = outputs_,
                                 .lda = dy_stride,
                                 .ldb = rank_,
                                 .ldc = rank_,
                                 .dtype = dy.dtype,
                                 .output_dtype = du.dtype});
  scale(call, du);
}

void AdapterBlock::backward_input(const BlockCall& call, Elements dx) const {
  const Elements du = workspace_->at(gradient_);
  kernels_->matmul(call.stream, {.a = du,
                                 .b = call.weights + a_.offset,
                                 .c = dx,
                                 .m = call.lane.rows(),
                                 .n = inputs_,
                                 .k = rank_,
                                 .lda = rank_,
                                 .ldb = inputs_,
                                 .ldc = inputs_,
                                 .accumulate = true,
                                 .dtype = du.dtype,
                                 .output_dtype = dx.dtype});
}

void AdapterBlock::backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                   ConstElements x) const {
  if (!a_.frozen) {
    kernels_->matmul(call.stream, {.a = workspace_->at(gradient_),
                                   .b = x,
                                   .c = call.gradient + a_.gradient,
                                   .m = rank_,
                                   .n = inputs_,
                                   .k = call.lane.rows(),
                                   .lda = rank_,
                                   .ldb = inputs_,
                                   .ldc = inputs_,
                                   .transpose_a = true,
                                   .dtype = x.dtype});
  }
  if (!b_.frozen) {
    kernels_->matmul(call.stream, {.a = dy,
                                   .b = inner(call, x),
                                   .c = call.gradient + b_.gradient,
                                   .m = outputs_,
                                   .n = rank_,
                                   .k = call.lane.rows(),
                                   .lda = dy_stride,
                                   .ldb = rank_,
                                   .ldc = rank_,
                                   .transpose_a = true,
                                   .dtype = x.dtype});
  }
}

}  // namespace train::engine
