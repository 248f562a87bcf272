#include "cli/command.hpp"
#include "cli/report/shard_report.hpp"
#include "configs/error_place.hpp"
#include "configs/load_config.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "run/plan/run_plan.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Prints the state kept by each rank under every strategy, and the traffic.
Status show_plan(const PlanOptions& options) {
  configs::KeyPositions places;
  const auto config = TRAIN_TRY(configs::load_config(options.config, options.set, &places));
  const auto plan = plan_run(config);
  if (!plan) {
    return configs::with_place(plan.error(), config, places);
  }
  print(describe_sharding(engine::largest_phase(plan->engine), memory_slots(*plan),
                          config.parallel.nodes));
  return {};
}

}  // namespace

void describe_plan(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "plan", "Show what each rank of a run would keep, compute and send; start nothing.");
  PlanOptions& options = command.runs(show_plan);
  command.run_file(options.config, options.set);
}

}  // namespace train::cli
