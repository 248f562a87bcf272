#pragma once

#include <optional>
#include <string>

#include "run/plan/run_plan.hpp"

namespace train::cli {

/// Output of `run --dry-run`: model, steps, tokens, FLOPs and time of the run, then needs_report().
/// `flops_per_second` of all devices or nodes: what the run of `work` (run::work_of(); empty: not
/// known) reached on this machine, or without one the machine's peak; 0: not known.
[[nodiscard]] std::string dry_run_report(const run::RunPlan& plan, double flops_per_second,
                                         const std::optional<std::string>& work);

}  // namespace train::cli
