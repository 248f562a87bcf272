#include "cli/command.hpp"
#include "cli/report/shard_report.hpp"
#include "configs/error_place.hpp"
#include "configs/load_config.hpp"
#include "run/plan/run_plan.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Prints what the run takes under every strategy, and the traffic.
Status show_plan(const PlanOptions& options) {
  configs::KeyPositions places;
  const auto config = TRAIN_TRY(configs::load_config(options.config, options.set, &places));
  const auto plan = options.vocab ? plan_without_data(config, *options.vocab) : plan_run(config);
  if (!plan) {
    return configs::with_place(plan.error(), config, places);
  }
  print(plan_report(*plan, options.tensors));
  return {};
}

}  // namespace

void describe_plan(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "plan", "Show what each rank of a run would keep, compute and send; start nothing.");
  PlanOptions& options = command.runs(show_plan);
  command.run_file(options.config, options.set);
  command.app.add_flag("--tensors", options.tensors, "Show which rows of each tensor a rank keeps");
  command.integer("--vocab", options.vocab,
                  "Tokens of the vocabulary: plan without the data, which need not be there", 1);
}

}  // namespace train::cli
