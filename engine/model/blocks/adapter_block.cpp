#include "engine/model/blocks/adapter_block.hpp"

#include <cmath>

#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"

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

LinearSizes AdapterBlock::sizes_a(const BlockCall& call) const {
  return {call.lane.rows(), inputs_, rank_};
}

LinearSizes AdapterBlock::sizes_b(const BlockCall& call) const {
  return {call.lane.rows(), rank_, outputs_};
}

Elements AdapterBlock::inner(const BlockCall& call, ConstElements x, std::int64_t x_stride) const {
  const Elements u = workspace_->at(inner_);
  auto product = output_product(sizes_a(call), x, call.weights + a_.offset, u, rank_);
  product.lda = x_stride;
  kernels_->matmul(call.stream, product);
  scale(call, u);
  return u;
}

void AdapterBlock::forward(const BlockCall& call, ConstElements x, Elements y,
                           std::int64_t y_stride) const {
  const Elements u = inner(call, x);
  auto product = output_product(sizes_b(call), u, call.weights + b_.offset, y, y_stride);
  product.accumulate = true;
  kernels_->matmul(call.stream, product);
}

void AdapterBlock::begin_backward(const BlockCall& call, ConstElements dy,
                                  std::int64_t dy_stride) const {
  const Elements du = workspace_->at(gradient_);
  kernels_->matmul(call.stream,
                   input_product(sizes_b(call), dy, dy_stride, call.weights + b_.offset, du));
  scale(call, du);
}

void AdapterBlock::backward_input(const BlockCall& call, Elements dx) const {
  const Elements du = workspace_->at(gradient_);
  auto product = input_product(sizes_a(call), du, rank_, call.weights + a_.offset, dx);
  product.accumulate = true;
  kernels_->matmul(call.stream, product);
}

void AdapterBlock::backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                   ConstElements x) const {
  if (!a_.frozen) {
    kernels_->matmul(call.stream, weight_product(sizes_a(call), workspace_->at(gradient_), rank_, x,
                                                 call.gradient + a_.gradient));
  }
  if (!b_.frozen) {
    kernels_->matmul(call.stream, weight_product(sizes_b(call), dy, dy_stride, inner(call, x),
                                                 call.gradient + b_.gradient));
  }
}

void AdapterBlock::part_forward(const BlockCall& call, const LinearPart& part, ConstElements x,
                                Elements y) const {
  const Elements u = inner(call, x, part.x_stride);
  auto product = output_product({call.lane.rows(), rank_, part.count, false}, u,
                                call.weights + b_.offset + part.first * rank_, y, part.y_stride);
  product.accumulate = true;
  kernels_->matmul(call.stream, product);
}

void AdapterBlock::part_input(const BlockCall& call, const LinearPart& part, ConstElements x,
                              Elements y) const {
  const Elements u = workspace_->at(inner_);
  kernels_->matmul(call.stream,
                   input_product({call.lane.rows(), rank_, part.count, false}, x, part.x_stride,
                                 call.weights + b_.offset + part.first * rank_, u));
  scale(call, u);
  auto product = input_product(sizes_a(call), u, rank_, call.weights + a_.offset, y);
  product.ldc = part.y_stride;
  product.accumulate = true;
  kernels_->matmul(call.stream, product);
}

}  // namespace train::engine
