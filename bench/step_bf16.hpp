#pragma once

#include "bench/step_compare.hpp"

namespace train::bench {

/// Prints how fast steps with precision.compute = "bf16" are against those with "fp32", round by
/// round in turn. `target`: of the quotient of speeds. Says so where the processor has no products
/// of bf16. Blocks.
void print_bf16_gain(const Workplace& place, const StepCase& one, const Length& length,
                     double target);

}  // namespace train::bench
