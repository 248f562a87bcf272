#include "engine/model/blocks/state_space/causal_conv_block.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/backend.hpp"
#include "kernels/state_space/causal_conv.hpp"

namespace train::engine {

ParameterPlace add_parameter(const BlockContext& context, const std::string& name,
                             std::vector<std::int64_t> shape, Initializer init, bool exact,
                             ParameterGroup group) {
  return context.parameters.add({.name = context.prefix + name,
                                 .shape = std::move(shape),
                                 .group = group,
                                 .init = init,
                                 .exact = exact});
}

kernels::DocumentRows document_rows(const Lane& lane) {
  return {.positions = lane.positions, .sequences = lane.sequences, .seq_len = lane.seq_len};
}

kernels::TextStates text_states(const Lane& lane, const Workspace& workspace, Workspace::Slot slot,
                                Content content) {
  if (lane.cache == CacheUse::none) {
    return {};
  }
  void* data = content == Content::floats ? static_cast<void*>(workspace.floats_at(slot))
                                          : static_cast<void*>(workspace.at(slot));
  return {.data = data, .texts = lane.texts, .extend = lane.cache == CacheUse::extend};
}

CausalConvBlock::CausalConvBlock(const BlockContext& context, const std::string& name,
                                 const Options& options)
    : kernels_(&context.kernels), workspace_(&context.workspace), options_(options) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.taps));
  weight_ = add_parameter(context, name + ".weight", {options.channels, 1, options.taps},
                          Initializer::uniform(-bound, bound), false, ParameterGroup::decay);
  if (options.bias) {
    bias_ = add_parameter(context, name + ".bias", {options.channels}, Initializer::constant(0.0),
                          false);
  }
  if (const std::int64_t texts = workspace_->cached_texts(); texts > 0) {
    last_inputs_ = workspace_->keep_for_texts(
        context.prefix + "last scan inputs",
        texts * std::max<std::int64_t>(1, options.taps - 1) * options.channels);
  }
}

void CausalConvBlock::forward(const BlockCall& call, ConstElements x, Elements y) const {
  kernels_->causal_conv_forward(
      call.stream, {.rows = document_rows(call.lane),
                    .x = x,
                    .weight = call.weights + weight_.offset,
                    .bias = bias(call),
                    .y = y,
                    .channels = options_.channels,
                    .taps = options_.taps,
                    .x_stride = options_.x_stride,
                    .y_stride = options_.channels,
                    .states = text_states(call.lane, *workspace_, last_inputs_, Content::elements),
                    .dtype = x.dtype});
}

void CausalConvBlock::backward(const BlockCall& call, ConstElements x, ConstElements dy,
                               Elements dx) const {
  kernels_->causal_conv_backward(call.stream,
                                 {.rows = document_rows(call.lane),
                                  .x = x,
                                  .weight = call.weights + weight_.offset,
                                  .bias = bias(call),
                                  .dy = dy,
                                  .dx = dx,
                                  .dweight = gradient_of(call, weight_),
                                  .dbias = options_.bias ? gradient_of(call, bias_) : nullptr,
                                  .channels = options_.channels,
                                  .taps = options_.taps,
                                  .x_stride = options_.x_stride,
                                  .y_stride = options_.channels,
                                  .dx_stride = options_.x_stride,
                                  .dtype = x.dtype});
}

}  // namespace train::engine
