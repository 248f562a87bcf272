#pragma once

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/head_scan.hpp"

namespace train::kernels::cpu {

/// Steps and decays of all rows and heads, [rows, heads] each.
struct HeadSteps {
  const float *steps, *decays;
};

/// Computes them in `scratch`.
HeadSteps head_steps(const HeadScanInputs& in, int threads, Scratch& scratch);

}  // namespace train::kernels::cpu
