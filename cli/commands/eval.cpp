#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "actors/head/run_plan.hpp"
#include "actors/train/rank_setup.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "cli/audit/replay_parts.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "engine/rank/run_device.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{500};  // of the directory of checkpoints

/// The configuration of an evaluation of `config`'s model on `ranks` ranks in this process.
configs::RunConfig evaluation_config(configs::RunConfig config, std::int64_t ranks) {
  config.parallel = {};
  config.parallel.ranks = ranks;
  config.parallel.strategy = ranks > 1 ? "full" : "none";
  config.parallel.transport = "inproc";
  if (config.eval.interval_steps == 0) {
    config.eval.interval_steps = 1;  // the run itself never evaluated; asking for it is enough
  }
  return config;
}

/// The ranks follow two commands: evaluate, stop.
Result<EvaluationFinished> evaluate(const std::vector<RankContext>& contexts, std::int64_t step) {
  Result<EvaluationFinished> result = failure("the ranks have stopped without an evaluation");
  TRAIN_RETURN_IF_ERROR(run_local_ranks(
      contexts,
      {.first_step = step, .total_steps = step, .eval_interval = 1, .evaluation_missed = true},
      {.step = {}, .evaluation = [&](const EvaluationFinished& event) {
         result = event;
         return false;
       }}));
  return result;
}

Status evaluate_checkpoint(const configs::RunConfig& config, const fs::path& directory,
                           std::int64_t step) {
  auto plan = plan_run(config);
  TRAIN_RETURN_IF_ERROR(plan);
  TRAIN_RETURN_IF_ERROR(
      engine::check_device(config.runtime.device, plan->engine.model, kOtherDevice));
  const auto difference = data_difference(directory, *plan);
  TRAIN_RETURN_IF_ERROR(difference);
  if (!difference->empty()) {
    log_warning(fmt::format("other_data {}", *difference));
  }
  const auto contexts = make_local_ranks(*plan, {.checkpoint = directory});
  TRAIN_RETURN_IF_ERROR(contexts);
  const auto result = evaluate(*contexts, step);
  TRAIN_RETURN_IF_ERROR(result);
  const double loss = result->cross_entropy.value();
  std::string line = fmt::format("eval step={} loss={:.6f} perplexity={:.4f} accuracy={:.4f}", step,
                                 loss, std::exp(loss), result->accuracy.value());
  if (const auto bytes = plan->data->bytes_per_token()) {
    line += fmt::format(" bits_per_byte={:.6f}", loss / std::log(2.0) / *bytes);
  }
  print(line + "\n");
  return {};
}

/// Evaluates what is committed, oldest first, until the run's last step or a signal.
Status follow(const configs::RunConfig& config, const fs::path& checkpoints) {
  std::set<std::int64_t> done;
  while (!signal_pending()) {
    auto candidates = checkpoint::list_checkpoints(checkpoints);
    TRAIN_RETURN_IF_ERROR(candidates);
    std::sort(candidates->begin(), candidates->end(),
              [](const auto& a, const auto& b) { return a.step < b.step; });
    for (const checkpoint::Candidate& candidate : *candidates) {
      if (signal_pending() || !done.insert(candidate.step).second) {
        continue;
      }
      const Status status = evaluate_checkpoint(config, candidate.path, candidate.step);
      std::error_code ignored;
      if (!status.ok() && fs::exists(candidate.path, ignored)) {
        return status.error();
      }
      if (!status.ok()) {
        log_info(
            fmt::format("checkpoint_gone step={} retired while it was evaluated", candidate.step));
      }
    }
    if (done.contains(config.run.steps)) {
      return {};
    }
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

Status evaluate_run(const EvalOptions& options) {
  if (!options.follow) {
    allow_signals();
  }
  const fs::path run(options.run_directory);
  const auto stored = load_run_config(run);
  TRAIN_RETURN_IF_ERROR(stored);
  if (options.ranks > stored->batch.lanes) {
    return user_error(fmt::format("--ranks {}: the run has {} lanes; use at most that many ranks",
                                  options.ranks, stored->batch.lanes));
  }
  configs::RunConfig config = evaluation_config(*stored, options.ranks);
  config.runtime.device = options.device.value_or(config.runtime.device);
  if (options.follow) {
    return follow(config, run / "checkpoints");
  }
  const auto found = find_checkpoint(run / "checkpoints", options.step);
  TRAIN_RETURN_IF_ERROR(found);
  return evaluate_checkpoint(config, found->candidate.path, found->candidate.step);
}

}  // namespace

/// The evaluation of a checkpoint, or of each new one, on any number of ranks.
void describe_eval(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("eval", "Evaluate a run's checkpoint on the validation data.");
  EvalOptions& options = command.runs(evaluate_run);
  command.run_directory(options.run_directory);
  command.step(options.step);
  command.integer("--ranks", options.ranks, "Ranks that share the work", 1)->default_str("1");
  command.app.add_flag("--follow", options.follow,
                       "Evaluate every checkpoint as the run publishes it, until the run ends");
  command.device(options.device);
  command.check([&options] {
    return options.follow && options.step
               ? "--follow takes every checkpoint, --step one; give one of them"
               : "";
  });
}

}  // namespace train::cli
