#pragma once

#include <cstdint>

#include "configs/sections/optimizer_section.hpp"

namespace train::engine {

/// beta3 and alpha of AdEMAMix at one step.
struct SlowAverage {
  double beta3 = 0.0;
  double alpha = 0.0;
};

/// The section's values, or where they are 0 those that follow from the length of the run:
/// 1 - delta / run_steps and run_steps^(1 - kappa).
[[nodiscard]] SlowAverage slow_average(const configs::OptimizerSection& section,
                                       std::int64_t run_steps);

/// `last` at update `step` (from 1): alpha rises from 0 in a line; the half-life of beta3 rises in
/// a line from that of beta1 (AdEMAMix, appendix of arXiv 2409.03137).
[[nodiscard]] SlowAverage warmed_up(const configs::OptimizerSection& section,
                                    const SlowAverage& last, std::int64_t step);

}  // namespace train::engine
