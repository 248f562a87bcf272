#pragma once

#include <string>

#include "bench/step_case.hpp"

namespace train::bench {

/// Prints, kernel by kernel, where the time of a step of the plain loop goes; means of `steps`.
/// Blocks.
void print_shares(const Workplace& place, const StepCase& one, const std::string& title, int steps);

}  // namespace train::bench
