#pragma once

#include "bench/steps/step_compare.hpp"

namespace train::bench {

/// Prints the speed of steps with precision.compute = "bf16" relative to "fp32", in alternating
/// rounds. `target`: for the ratio. Reports if the processor lacks bf16 products. Blocks.
void print_bf16_gain(const Workplace& place, const StepCase& one, const Length& length,
                     double target);

}  // namespace train::bench
