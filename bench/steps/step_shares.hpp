#pragma once

#include <string>

#include "bench/steps/step_case.hpp"

namespace train::bench {

/// Prints the time of a plain loop's step, kernel by kernel; means of `steps`. Blocks.
void print_shares(const Workplace& place, const StepCase& one, const std::string& title, int steps);

}  // namespace train::bench
