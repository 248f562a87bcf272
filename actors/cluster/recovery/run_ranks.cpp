#include "actors/cluster/recovery/run_ranks.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "actors/cluster/recovery/process_ranks.hpp"
#include "actors/head/head_setup.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/system/actor_systems.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/runtime/rank_profile.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "base/exit_codes.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "run/recovery/generations.hpp"
#include "run/recovery/verdict.hpp"

namespace train::actors {
namespace {

/// Makes all ranks in this process. A signal ends reading a checkpoint: there is nothing to save
/// yet.
Result<std::vector<RankContext>> make_ranks(const run::PreparedRun& run) {
  const StopOnSignal signal;
  StartState start{.memory = run.memory.start(),
                   .references_done = run.start.references_done,
                   .identity = run.store->identity(),
                   .stop = signal.token()};
  if (run.start.checkpoint) {
    start.checkpoint = run.start.checkpoint->path;
  }
  return make_local_ranks(run.plan, start);
}

/// Result of the recovery table for ranks that start in this process, if they end before the first
/// step; nullopt: they train. Errors: that of `made`, if no table row covers it.
Result<std::optional<RunFinished>> end_of_start(const run::PreparedRun& run, const Status& made) {
  run::Verdict verdict(run::HeadState::starting);
  if (const int signal = stop_signal(); signal != 0) {
    const bool in_memory = run.memory.start().has_value();
    run::note_event(run, run::stop_requested_event(signal));
    verdict.signal(signal, in_memory);
  }
  if (!made && made.error().kind == ErrorKind::damage) {
    verdict.failed({.text = made.error().message, .damaged = true}, /*ranks=*/1);
  }
  if (verdict.over()) {
    return std::optional(verdict.outcome(run.first_step()));
  }
  TRAIN_RETURN_IF_ERROR(made);
  return std::optional<RunFinished>();
}

/// Starts the actors of all ranks, and waits until the conductor reports the end of the run.
RunFinished end_of_actors(caf::actor_system& system, const run::PreparedRun& run,
                          const std::vector<RankParts>& ranks, const HeadParts& head,
                          std::stop_source& copies) {
  RunFinished outcome;
  caf::scoped_actor self(system);
  TrainingActors actors = start_training(system, ranks, head, caf::actor_cast<caf::actor>(self));
  const SignalListener signals([conductor = actors.conductor](int signal) {
    caf::anon_send(conductor, StopRequested{signal});
  });
  self->monitor(actors.conductor);  // Otherwise its end would go unnoticed.
  self->receive([&outcome](const RunFinished& finished) { outcome = finished; },
                [&outcome, &run](const caf::down_msg& down) {
                  outcome = run::head_failure(run.first_step(), failure_text(down.reason));
                });
  copies.request_stop();  // A copy still running had its time.
  for (const RankParts& rank : ranks) {
    cancel_transports({rank.context}, "the run is over");
  }
  stop_training(actors);
  return outcome;
}

/// Runs the ranks of this process until the end of the run.
Result<RunFinished> run_here(const run::PreparedRun& run, std::shared_ptr<run::RunReport> report) {
  const auto contexts = make_ranks(run);
  const auto ended = TRAIN_TRY(end_of_start(run, contexts ? Status() : Status(contexts.error())));
  if (ended) {
    return *ended;
  }
  if (!run.memory.start()) {
    run.store->restored();
  }
  std::vector<RankParts> ranks;
  std::stop_source copies;
  for (const RankContext& context : *contexts) {
    if (run.reporting.profile) {
      context->start_trace();
    }
    auto shards = TRAIN_TRY(shard_work({.places = run.store->locations(),
                                        .tag = run.store->tag(),
                                        .identity = run.store->identity(),
                                        .rsync = {.stop = copies.get_token()}},
                                       run.config().parallel, context->rank));
    ranks.push_back({.context = context,
                     .shards = std::move(shards),
                     .reporting = {.digest_interval = run.config().run.digest_interval_steps}});
  }
  HeadParts head = head_parts(run, std::move(report), make_disk_stream());

  auto config = std::make_unique<caf::actor_system_config>();
  set_up_handlers(*config);
  auto system = make_actor_system(*config);
  const RunFinished outcome =
      beside_actors([&] { return end_of_actors(*system, run, ranks, head, copies); });
  if (!actors_end(*system, outcome.exit_code == kExitFailure)) {
    (void)system.release();  // They keep what they use until the process has said why it ends.
    (void)config.release();
  }
  for (const RankContext& context : *contexts) {
    if (!run.reporting.profile) {
      continue;
    }
    if (const Status written =
            write_rank_profile(run::profile_directory(run.directory.root), *context);
        !written) {
      log_error(written.error().message);  // The error of the run itself takes precedence.
    }
  }
  return outcome;
}

Result<RunFinished> run_generation(run::PreparedRun& run, ProcessRanks& processes) {
  if (const Status room = run.memory.make_room(run.plan, run.nodes.position); !room) {
    if (run.generation == 0) {
      return room.error();
    }
    // With fewer nodes each holds more state; snapshots in memory are optional.
    log_warning(fmt::format("no_snapshots_in_memory {}", room.error().message));
  }
  const std::shared_ptr<run::RunReport> kept = TRAIN_TRY(run::open_report(run));
  const bool elsewhere = run::in_processes(run.config().parallel, run.plan.separate_processes);
  auto outcome = elsewhere ? processes.run(kept) : run_here(run, kept);
  run.status->set_progress(kept->progress());
  return outcome;
}

}  // namespace

Result<RunFinished> run_ranks(run::PreparedRun& run) {
  ProcessRanks processes(run);
  const auto one = [&processes](run::PreparedRun& prepared) {
    return run_generation(prepared, processes);
  };
  return beside_actors([&] {
    return run::run_generations(run, one, run.config().parallel.nodes > 1 ? &processes : nullptr);
  });
}

}  // namespace train::actors
