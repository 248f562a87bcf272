#include <cstdio>

#include "actors/exit_codes.hpp"
#include "actors/run/node_memory.hpp"
#include "actors/run/run_command.hpp"
#include "actors/run/run_plan.hpp"
#include "actors/run/shard_report.hpp"
#include "configs/load_config.hpp"
#include "engine/base/log.hpp"

namespace train::actors {

int plan_command(const cli::PlanOptions& options) {
  const auto config = configs::load_config(options.config, options.set);
  if (!config) {
    log_error(config.error().message);
    return config.error().exit_code();
  }
  const auto plan = plan_run(*config);
  if (!plan) {
    log_error(plan.error().message);
    return plan.error().exit_code();
  }
  const std::int64_t snapshots = keeps_in_memory(plan->config) ? kMemorySlots : 0;
  std::fputs(describe_sharding(plan->engine, snapshots).c_str(), stdout);
  return kExitFinished;
}

}  // namespace train::actors
