#include "engine/model/experts/expert_maps.hpp"

#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/experts/experts.hpp"

namespace train::engine {

using kernels::ExpertMatmulParams;
using kernels::ExpertProduct;

ExpertMaps::ExpertMaps(const BlockContext& context, const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      rank_(context.lora.rank),
      scale_(rank_ == 0 ? 1.0F : context.lora.scale()),
      w_{.outputs = options.outputs, .inputs = options.inputs},
      a_{.outputs = rank_, .inputs = options.inputs},
      b_{.outputs = options.outputs, .inputs = rank_} {}

namespace {

/// Distance between the parameters of two experts; all lie at the same.
std::int64_t stride_of(const std::vector<ParameterPlace>& places) {
  return places.size() < 2 ? 0 : places[1].offset - places[0].offset;
}

void add_at_distance(ParameterPlace place, std::vector<ParameterPlace>& places) {
  places.push_back(place);
  TRAIN_CHECK(places.size() < 3 ||
                  places.back().offset - places[places.size() - 2].offset == stride_of(places),
              "parameters of experts lie at different distances");
}

/// Neighbouring trained experts whose gradients lie at equal distances.
struct ExpertRun {
  std::int64_t first = 0, count = 0, gradient = 0, stride = 0;
};

std::vector<ExpertRun> trained_runs(const std::vector<ParameterPlace>& places) {
  std::vector<ExpertRun> runs;
  for (std::size_t first = 0, last = 0; first < places.size(); first = last) {
    last = first + 1;
    if (places[first].frozen) {
      continue;
    }
    const auto distance = [&](std::size_t at) {
      return places[at].gradient - places[at - 1].gradient;
    };
    while (last < places.size() && !places[last].frozen &&
           (last == first + 1 || distance(last) == distance(first + 1))) {
      ++last;
    }
    runs.push_back({.first = static_cast<std::int64_t>(first),
                    .count = static_cast<std::int64_t>(last - first),
                    .gradient = places[first].gradient,
                    .stride = last - first > 1 ? distance(first + 1) : 0});
  }
  return runs;
}

}  // namespace

void ExpertMaps::Matrices::add(const BlockContext& context, Parameter parameter) {
  parameter.shape = {outputs, inputs};
  parameter.fan_in = inputs;
  parameter.group = ParameterGroup::decay;
  parameter.linear = true;
  parameter.muon = true;
  add_at_distance(context.parameters.add(std::move(parameter)), places);
}

void ExpertMaps::add(const BlockContext& context, const std::string& module) {
  TRAIN_CHECK(a_.places.empty(), "{} comes after an adapter", module);
  w_.add(context, {.name = context.prefix + module + ".weight",
                   .init = options_.init,
                   .adaptable = true,
                   .adapted_by_name = true,
                   .used_share = options_.used_share});
  if (options_.bias) {
    add_at_distance(context.parameters.add({.name = context.prefix + module + ".bias",
                                            .shape = {options_.outputs},
                                            .group = ParameterGroup::no_decay,
                                            .init = Initializer::constant(0.0),
                                            .used_share = options_.used_share}),
                    biases_);
  }
}

void ExpertMaps::add_adapter(const BlockContext& context, const std::string& module) {
  const std::string name = context.prefix + module;
  if (!context.lora.adapts(name, /*by_name=*/true)) {
    return;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(options_.inputs));
  a_.add(context, {.name = name + ".lora_A.weight",
                   .init = Initializer::uniform(-bound, bound),
                   .used_share = options_.used_share,
                   .adapter = true});
  b_.add(context, {.name = name + ".lora_B.weight",
                   .init = Initializer::constant(0.0),
                   .used_share = options_.used_share,
                   .adapter = true});
}

void ExpertMaps::reserve(std::int64_t places) {
  if (a_.places.empty()) {
    return;
  }
  TRAIN_CHECK(a_.places.size() == w_.places.size(), "{} of {} experts have an adapter",
              a_.places.size(), w_.places.size());
  inner_ = workspace_->scratch(Phase::block, "expert adapter inner", places * rank_);
  inner_gradient_ =
      workspace_->scratch_backward(Phase::block, "expert adapter gradient", places * rank_);
}

ExpertMatmulParams ExpertMaps::product(const Matrices& matrices, const ExpertRows& rows) const {
  return {.offsets = rows.offsets,
          .experts = static_cast<std::int64_t>(matrices.places.size()),
          .places = rows.places,
          .n = matrices.outputs,
          .k = matrices.inputs,
          .stride = stride_of(matrices.places)};
}

void ExpertMaps::multiply(const BlockCall& call, ExpertProduct kind, const Matrices& matrices,
                          const ExpertRows& rows, ConstElements from, Elements to,
                          bool accumulate) const {
  const bool forward = kind == ExpertProduct::output;
  ExpertMatmulParams params = product(matrices, rows);
  params.product = kind;
  params.a = from;
  params.b = call.weights + matrices.places.front().offset;
  params.c = to;
  params.lda = forward ? matrices.inputs : matrices.outputs;
  params.ldb = matrices.inputs;
  params.ldc = forward ? matrices.outputs : matrices.inputs;
  params.accumulate = accumulate;
  params.dtype = from.dtype;
  params.output_dtype = to.dtype;
  kernels_->expert_matmul(call.stream, params);
}

void ExpertMaps::output(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
                        ConstElements x, Elements y, bool accumulate) const {
  multiply(call, ExpertProduct::output, matrices, rows, x, y, accumulate);
}

void ExpertMaps::input(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
                       ConstElements dy, Elements dx, bool accumulate) const {
  multiply(call, ExpertProduct::input, matrices, rows, dy, dx, accumulate);
}

void ExpertMaps::weight(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
                        ConstElements dy, ConstElements x) const {
  ExpertMatmulParams params = product(matrices, rows);
  params.product = ExpertProduct::weight;
  params.a = dy;
  params.b = x;
  params.lda = matrices.outputs;
  params.ldb = matrices.inputs;
  params.ldc = matrices.inputs;
  params.dtype = x.dtype;
  for (const ExpertRun& run : trained_runs(matrices.places)) {
    params.offsets = rows.offsets + run.first;
    params.experts = run.count;
    params.stride = run.stride;
    params.c = call.gradient + run.gradient;
    kernels_->expert_matmul(call.stream, params);
  }
}

void ExpertMaps::add_bias(const BlockCall& call, const ExpertRows& rows, Elements y) const {
  kernels_->expert_bias_forward(call.stream, {.y = y,
                                              .bias = call.weights + biases_.front().offset,
                                              .offsets = rows.offsets,
                                              .experts = static_cast<std::int64_t>(biases_.size()),
                                              .places = rows.places,
                                              .cols = options_.outputs,
                                              .y_stride = options_.outputs,
                                              .stride = stride_of(biases_),
                                              .dtype = y.dtype});
}

void ExpertMaps::backward_bias(const BlockCall& call, const ExpertRows& rows,
                               ConstElements dy) const {
  for (const ExpertRun& run : trained_runs(biases_)) {
    kernels_->expert_bias_backward(call.stream, {.dy = dy,
                                                 .dbias = call.gradient + run.gradient,
                                                 .offsets = rows.offsets + run.first,
                                                 .experts = run.count,
                                                 .places = rows.places,
                                                 .cols = options_.outputs,
                                                 .dy_stride = options_.outputs,
                                                 .stride = run.stride,
                                                 .dtype = dy.dtype});
  }
}

void ExpertMaps::scale(const BlockCall& call, const ExpertRows& rows, Elements values) const {
  if (scale_ != 1.0F) {
    kernels_->scale(call.stream, {.x = values,
                                  .y = values,
                                  .scale = scale_,
                                  .count = rows.places * rank_,
                                  .dtype = values.dtype});
  }
}

void ExpertMaps::forward(const BlockCall& call, const ExpertRows& rows, ConstElements x,
                         Elements y) const {
  output(call, w_, rows, x, y, /*accumulate=*/false);
  if (options_.bias) {
    add_bias(call, rows, y);
  }
  if (adapts(call)) {
    const Elements inner = workspace_->at(inner_);
    output(call, a_, rows, x, inner, /*accumulate=*/false);
    scale(call, rows, inner);
    output(call, b_, rows, inner, y, /*accumulate=*/true);
  }
}

void ExpertMaps::backward_input(const BlockCall& call, const ExpertRows& rows, ConstElements dy,
                                Elements dx, bool accumulate) const {
  input(call, w_, rows, dy, dx, accumulate);
  if (adapts(call)) {
    const Elements gradient = workspace_->at(inner_gradient_);
    input(call, b_, rows, dy, gradient, /*accumulate=*/false);
    scale(call, rows, gradient);
    input(call, a_, rows, gradient, dx, /*accumulate=*/true);
  }
}

void ExpertMaps::backward_weight(const BlockCall& call, const ExpertRows& rows, ConstElements dy,
                                 ConstElements x) const {
  weight(call, w_, rows, dy, x);
  if (adapts(call)) {
    const Elements inner = workspace_->at(inner_);
    const Elements gradient = workspace_->at(inner_gradient_);
    output(call, a_, rows, x, inner, /*accumulate=*/false);
    scale(call, rows, inner);
    weight(call, b_, rows, dy, inner);
    input(call, b_, rows, dy, gradient, /*accumulate=*/false);
    scale(call, rows, gradient);
    weight(call, a_, rows, gradient, x);
  }
}

}  // namespace train::engine
