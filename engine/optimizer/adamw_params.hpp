#pragma once

#include <span>
#include <utility>
#include <vector>

#include "configs/sections/optimizer_section.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "kernels/optimizer/adamw.hpp"

namespace train::engine {

/// Arguments of an AdamW step on slices whose states are exp_avg and exp_avg_sq; weight decay comes
/// before the update and applies to decay groups only. Variants overwrite fields. Owns nothing.
[[nodiscard]] inline kernels::AdamwParams adamw_params(const configs::OptimizerSection& section,
                                                       std::span<const OptimizerSlice> slices,
                                                       const OptimizerStep& step) {
  std::vector<kernels::AdamwParams::Tensor> tensors;
  for (const OptimizerSlice& slice : slices) {
    tensors.push_back({.p = slice.weights,
                       .g = slice.gradient,
                       .m = slice.states[0],
                       .v = slice.states[1],
                       .rounded = slice.rounded,
                       .count = slice.count()});
  }
  return {.tensors = std::move(tensors),
          .guard = step.guard,
          .step = step.step,
          .lr = step.lr,
          .beta1 = section.beta1,
          .beta2 = section.beta2,
          .eps = section.eps,
          .weight_decay = step.decayed ? section.weight_decay : 0.0};
}

/// Share of a slice's weights that a step's weight decay removes, for optimizers with the options
/// wd_coupling, wd_decaying and wd_ts: weight_decay times lr or lr / peak_lr, over 1 + t / wd_ts.
/// In double.
[[nodiscard]] inline double falling_weight_decay(const configs::OptimizerSection& section,
                                                 const OptimizerStep& step) {
  if (!step.decayed) {
    return 0.0;
  }
  const double share = section.wd_coupling == "lr_coupled" ? step.lr : step.lr / step.peak_lr;
  const double slowed =
      section.wd_decaying ? 1.0 + static_cast<double>(step.step) / section.wd_ts : 1.0;
  return share * section.weight_decay / slowed;
}

}  // namespace train::engine
