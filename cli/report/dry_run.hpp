#pragma once

#include <string>

#include "run/plan/run_plan.hpp"

namespace train::cli {

/// Output of `run --dry-run`: model, steps, tokens, FLOPs and time of the run, then needs_report().
/// `flops_per_second` of all devices or nodes, of the newest run on this machine where `of_a_run`,
/// or else its peak; 0: not known.
[[nodiscard]] std::string dry_run_report(const run::RunPlan& plan, double flops_per_second,
                                         bool of_a_run);

}  // namespace train::cli
