#include <fmt/format.h>

#include <caf/all.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>

#include "actors/head/conductor_actor.hpp"
#include "actors/head/reporter_actor.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/supervision.hpp"
#include "actors/train/rank_setup.hpp"
#include "actors/training_system.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "checkpoint/layout.hpp"
#include "cli/report_error.hpp"
#include "cli/run_command.hpp"
#include "cli/trained_model.hpp"
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
  caf::actor_system_config config;
  set_up_handlers(config);
  caf::actor_system system(config);
  std::optional<EvaluationFinished> result;
  std::optional<std::string> failed;
  {
    caf::scoped_actor self(system);
    const auto waiter = caf::actor_cast<caf::actor>(self);
    WaitBoard waits;
    const ConductorActor conductor = spawn_conductor(
        system, waits,
        {.first_step = step, .total_steps = step, .eval_interval = 1, .evaluation_missed = true});
    const ReporterActor listener = spawn_listener(system, waiter);
    const IndexActor index = spawn_index(system, {}, {});  // nothing is saved
    std::vector<caf::actor> actors = {caf::actor_cast<caf::actor>(conductor),
                                      caf::actor_cast<caf::actor>(listener),
                                      caf::actor_cast<caf::actor>(index)};
    std::vector<RankActor> ranks;
    for (const RankContext& context : contexts) {
      RankActors started = start_rank(system, {.context = context, .shards = {}, .reporting = {}},
                                      {.conductor = conductor, .index = index});
      ranks.push_back(started.rank);
      actors.insert(actors.end(), started.all.begin(), started.all.end());
    }
    caf::anon_send(conductor, ConnectConductor{ranks, listener, waiter, {}});
    self->monitor(conductor);
    while (!result && !failed) {
      self->receive([&](const EvaluationFinished& event) { result = event; },
                    [&](const RunFinished& finished) { failed = finished.text; },
                    [&](const caf::down_msg& down) { failed = failure_text(down.reason); });
    }
    cancel_transports(contexts, "the evaluation is over");
    stop_actors(actors);
  }
  system.await_all_actors_done();
  return result ? Result<EvaluationFinished>(*result) : failure(*failed);
}

Status evaluate_checkpoint(const configs::RunConfig& config, const fs::path& directory,
                           std::int64_t step) {
  auto plan = plan_run(config);
  if (!plan) {
    return plan.error();
  }
  TRAIN_RETURN_IF_ERROR(
      engine::check_device(config.runtime.device, plan->engine.shape, kOtherDevice));
  const auto difference = data_difference(directory, *plan);
  if (!difference) {
    return difference.error();
  }
  if (!difference->empty()) {
    log_warning(fmt::format("other_data {}", *difference));
  }
  const auto contexts = make_local_ranks(*plan, {.checkpoint = directory});
  if (!contexts) {
    return contexts.error();
  }
  const auto result = evaluate(*contexts, step);
  if (!result) {
    return result.error();
  }
  const double loss = result->cross_entropy.value();
  std::string line = fmt::format("eval step={} loss={:.6f} perplexity={:.4f} accuracy={:.4f}", step,
                                 loss, std::exp(loss), result->accuracy.value());
  if (const auto bytes = plan->dataset.bytes_per_token()) {
    line += fmt::format(" bits_per_byte={:.6f}", loss / std::log(2.0) / *bytes);
  }
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
  return {};
}

/// Evaluates what is committed, oldest first, until the run's last step or a signal.
Status follow(const configs::RunConfig& config, const fs::path& checkpoints) {
  std::set<std::int64_t> done;
  while (!signal_pending()) {
    auto candidates = checkpoint::list_checkpoints(checkpoints);
    if (!candidates) {
      return candidates.error();
    }
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
  const fs::path run(options.run_directory);
  const auto stored = load_run_config(run);
  if (!stored) {
    return stored.error();
  }
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
  if (!found) {
    return found.error();
  }
  return evaluate_checkpoint(config, found->candidate.path, found->candidate.step);
}

}  // namespace

int eval_command(const EvalOptions& options) {
  if (!options.follow) {
    allow_signals();
  }
  const Status status = evaluate_run(options);
  if (!status.ok()) {
    return report_error(status.error());
  }
  return kExitFinished;
}

}  // namespace train::cli
