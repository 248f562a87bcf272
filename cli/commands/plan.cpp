#include "cli/command.hpp"
#include "cli/report/shard_report.hpp"
#include "configs/error_place.hpp"
#include "configs/load_config.hpp"
#include "run/plan/run_plan.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Largest model.vocab_size.
constexpr std::int64_t kMostTokens = 1 << 24;

/// Prints what the run takes under every strategy, and the traffic.
Status show_plan(const PlanOptions& options) {
  configs::KeyPositions places;
  const auto config = TRAIN_TRY(configs::load_config(options.config, options.set, &places));
  const auto plan = options.vocab ? plan_without_data(config, *options.vocab) : plan_run(config);
  if (!plan) {
    return configs::with_place(plan.error(), config, places);
  }
  const std::int64_t known = plan->engine.model.vocab_size;
  if (options.vocab && *options.vocab > known) {
    return user_error(fmt::format(
        "--vocab {}: the model has {} tokens, and a run would refuse such data; give at most {}",
        *options.vocab, known, known));
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
  command.check([&options] {
    return options.vocab && *options.vocab > kMostTokens
               ? fmt::format("--vocab must be {} or less, not {}", kMostTokens, *options.vocab)
               : std::string();
  });
}

}  // namespace train::cli
