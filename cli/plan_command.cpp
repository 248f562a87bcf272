#include <cstdio>

#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"
#include "base/exit_codes.hpp"
#include "cli/report_error.hpp"
#include "cli/run_command.hpp"
#include "cli/shard_report.hpp"
#include "configs/load_config.hpp"

namespace train::cli {
using namespace actors;

int plan_command(const PlanOptions& options) {
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

}  // namespace train::cli
