#include <cstdio>

#include "actors/exit_codes.hpp"
#include "actors/report_error.hpp"
#include "actors/run/node_memory.hpp"
#include "actors/run/run_command.hpp"
#include "actors/run/run_plan.hpp"
#include "actors/run/shard_report.hpp"
#include "configs/load_config.hpp"

namespace train::actors {

int plan_command(const cli::PlanOptions& options) {
  const auto config = configs::load_config(options.config, options.set);
  if (!config) {
    return report_error(config.error());
  }
  const auto plan = plan_run(*config);
  if (!plan) {
    return report_error(plan.error());
  }
  const std::int64_t snapshots = memory_slots(*plan);
  std::fputs(describe_sharding(plan->engine, snapshots, config->parallel.nodes).c_str(), stdout);
  return kExitFinished;
}

}  // namespace train::actors
