#include "engine/optimizer/adamw_group.hpp"

#include "engine/base/check.hpp"

namespace train::engine {

AdamwGroup::AdamwGroup(const kernels::KernelTable& kernels,
                       const configs::OptimizerSection& section, ParameterGroup group)
    : kernels_(&kernels),
      section_(section),
      weight_decay_(group == ParameterGroup::decay ? section.weight_decay : 0.0) {}

void AdamwGroup::add(const OptimizerSlice& slice) {
  TRAIN_CHECK(slice.weights != nullptr && slice.gradient != nullptr && slice.exp_avg != nullptr &&
              slice.exp_avg_sq != nullptr);
  slices_.push_back(slice);
}

void AdamwGroup::update(kernels::Stream& stream, std::int64_t step, double lr,
                        const kernels::UpdateGate* gate) const {
  TRAIN_CHECK(step >= 1, "step {}", step);
  for (const OptimizerSlice& slice : slices_) {
    kernels_->adamw_update(stream, {.p = slice.weights,
                                    .g = slice.gradient,
                                    .m = slice.exp_avg,
                                    .v = slice.exp_avg_sq,
                                    .gate = gate,
                                    .count = slice.count,
                                    .step = step,
                                    .lr = lr,
                                    .beta1 = section_.beta1,
                                    .beta2 = section_.beta2,
                                    .eps = section_.eps,
                                    .weight_decay = weight_decay_});
  }
}

std::int64_t AdamwGroup::element_count() const {
  std::int64_t count = 0;
  for (const OptimizerSlice& slice : slices_) {
    count += slice.count;
  }
  return count;
}

}  // namespace train::engine
