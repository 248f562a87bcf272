#include "engine/optimizer/optimizer_group.hpp"

#include "engine/base/check.hpp"

namespace train::engine {

OptimizerGroup::OptimizerGroup(const kernels::KernelTable& kernels, const Optimizer& optimizer,
                               ParameterGroup group)
    : kernels_(&kernels), optimizer_(&optimizer), decayed_(group == ParameterGroup::decay) {}

void OptimizerGroup::add(const OptimizerSlice& slice) {
  TRAIN_CHECK(slice.parameter != nullptr && slice.weights != nullptr && slice.gradient != nullptr);
  const Parameter& parameter = *slice.parameter;
  const std::size_t states = optimizer_->states(parameter).size();
  TRAIN_CHECK(states <= kMostStates, "{} states of {}", states, parameter.name);
  for (std::size_t i = 0; i < states; ++i) {
    TRAIN_CHECK(slice.states[i] != nullptr, "{} lacks state {}", parameter.name, i);
  }
  TRAIN_CHECK(!optimizer_->whole(parameter) || slice.rows == parameter.rows,
              "{}: {} of {} rows are here", parameter.name, slice.rows, parameter.rows);
  slices_.push_back(slice);
}

void OptimizerGroup::update(kernels::Stream& stream, const Update& update) const {
  TRAIN_CHECK(update.step >= 1, "step {}", update.step);
  const OptimizerStep step{.kernels = kernels_,
                           .gate = update.gate,
                           .step = update.step,
                           .lr = update.lr,
                           .peak_lr = update.peak_lr,
                           .decayed = decayed_,
                           .diagnosed = update.diagnosed,
                           .scratch = update.scratch};
  for (const OptimizerSlice& slice : slices_) {
    optimizer_->update(stream, slice, step);
  }
}

std::int64_t OptimizerGroup::element_count() const {
  std::int64_t count = 0;
  for (const OptimizerSlice& slice : slices_) {
    count += slice.count();
  }
  return count;
}

}  // namespace train::engine
