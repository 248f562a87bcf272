#include "actors/cluster/recovery/respawns.hpp"

#include <utility>

#include "actors/head/run_plan.hpp"

namespace train::actors {

bool Respawns::allow(std::int64_t step) {
  if (step > step_) {
    step_ = step;
    lost_ = 0;
  }
  if (++lost_ <= limit_) {
    return true;
  }
  lost_ = 0;
  return false;
}

namespace {

/// Errors: a strategy that these ranks cannot have.
Result<RunPlan> plan_of(const RunPlan& now, std::int64_t nodes, std::int64_t ranks) {
  configs::RunConfig config = now.config;
  config.parallel.nodes = nodes;
  config.parallel.ranks = ranks;
  auto plan = plan_run(config);
  if (plan) {
    plan->separate_processes = now.separate_processes;
  }
  return plan;
}

}  // namespace

bool in_processes(const configs::ParallelSection& parallel, bool separate_processes) {
  return (parallel.ranks > 1 || separate_processes) && parallel.transport != "inproc";
}

bool can_respawn(const configs::RunConfig& config, bool separate_processes) {
  return config.recovery.rank_loss == "respawn" &&
         in_processes(config.parallel, separate_processes);
}

bool take_fewer_ranks(PreparedRun& run) {
  const std::int64_t most = run.config().parallel.nodes == 1 ? run.config().parallel.ranks - 1 : 0;
  for (std::int64_t ranks = most; ranks > 0; --ranks) {
    if (auto plan = plan_of(run.plan, 1, ranks)) {
      run.plan = std::move(plan).value();
      return true;
    }
  }
  return false;
}

Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes) {
  const configs::ParallelSection& parallel = run.config().parallel;
  const bool more = nodes > parallel.nodes;
  const std::int64_t all = more ? run.ranks_at_start : parallel.ranks;
  const std::int64_t all_nodes = more ? run.nodes_at_start : parallel.nodes;
  Result<RunPlan> plan = failure("no node is left");
  if (nodes == all_nodes) {  // whose ranks need not be the same number on each
    plan = plan_of(run.plan, nodes, all);
  }
  for (std::int64_t each = all / all_nodes; !plan && nodes > 0 && each > 0; --each) {
    plan = plan_of(run.plan, nodes, each * nodes);
  }
  return plan;
}

Status take_nodes(PreparedRun& run, std::int64_t nodes) {
  auto plan = plan_of_nodes(run, nodes);
  if (!plan) {
    return plan.error();
  }
  run.plan = std::move(plan).value();
  run.place.nodes = nodes;
  return {};
}

}  // namespace train::actors
