#include "actors/run/run_command.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stop_token>
#include <utility>

#include "actors/exit_codes.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/profile/run_profile.hpp"
#include "actors/report_error.hpp"
#include "actors/run/generations.hpp"
#include "actors/run/node_run.hpp"
#include "actors/run/prepared_run.hpp"
#include "actors/run/rank_setup.hpp"
#include "actors/run/respawns.hpp"
#include "actors/run/sample.hpp"
#include "actors/run/signal_watcher.hpp"
#include "actors/run/worker_run.hpp"
#include "actors/supervision.hpp"
#include "configs/load_config.hpp"
#include "engine/base/log.hpp"
#include "engine/base/units.hpp"
#include "engine/run_device.hpp"

namespace train::actors {
namespace {

/// Runs the actors of all ranks in this process until the conductor says that the run is over.
Result<RunFinished> run_here(const PreparedRun& run, std::shared_ptr<RunReport> report) {
  StartState start{.memory = run.memory.start()};
  if (run.checkpoint) {
    start.checkpoint = run.checkpoint->path;
  }
  const auto contexts = make_local_ranks(run.plan, start);
  if (!contexts) {
    return contexts.error();
  }
  std::vector<RankParts> ranks;
  std::stop_source copies;
  for (const RankContext& context : *contexts) {
    if (run.profile) {
      context->start_trace();
    }
    auto shards = shard_work(run.home->places(), run.home->tag(), run.config().parallel,
                             context->rank, {.stop = copies.get_token()});
    if (!shards) {
      return shards.error();
    }
    ranks.push_back({.context = context,
                     .shards = std::move(shards).value(),
                     .reporting = {.digest_interval = run.config().run.digest_interval_steps}});
  }
  HeadParts head = head_parts(run, std::move(report), make_disk_stream());

  caf::actor_system_config config;
  set_up_handlers(config);
  caf::actor_system system(config);
  RunFinished outcome;
  {
    caf::scoped_actor self(system);
    TrainingActors actors = start_training(system, ranks, head, caf::actor_cast<caf::actor>(self));
    const SignalWatcher signals([conductor = actors.conductor](int signal) {
      caf::anon_send(conductor, StopRequested{signal});
    });
    self->monitor(actors.conductor);  // nobody else would hear of its end
    self->receive([&outcome](const RunFinished& finished) { outcome = finished; },
                  [&outcome, &run](const caf::down_msg& down) {
                    outcome = {run.first_step(), kExitFailure, failure_text(down.reason)};
                  });
    copies.request_stop();  // one that is still under way has had its time
    cancel_transports(*contexts, "the run is over");
    stop_training(actors);
  }
  system.await_all_actors_done();
  for (const RankContext& context : *contexts) {
    if (!run.profile) {
      continue;
    }
    if (const Status written = write_rank_profile(profile_directory(run.directory.root), *context);
        !written) {
      log_error(written.error().message);  // the run's own end comes first
    }
  }
  return outcome;
}

/// Joins what the ranks left and shows the table; false if that failed.
bool show_profile(const PreparedRun& run) {
  const auto directory = profile_directory(run.directory.root);
  // Those of this node have ended.
  const auto patience = std::chrono::seconds(run.config().parallel.nodes > 1 ? 10 : 0);
  const auto table = join_profiles(directory, run.config().parallel.ranks, patience);
  if (!table) {
    report_error(table.error());
    return false;
  }
  std::fputs(table->c_str(), stdout);
  std::fputs(fmt::format("profile: {} (open it in ui.perfetto.dev or chrome://tracing)\n",
                         (directory / "trace.json").string())
                 .c_str(),
             stdout);
  return true;
}

int finish(const PreparedRun& run, const RunFinished& outcome) {
  if (outcome.exit_code != kExitFinished && outcome.exit_code != kExitStopped) {
    log_error(outcome.text);
    return outcome.exit_code;
  }
  log_info(fmt::format("run_finished {}", outcome.text));
  if (outcome.exit_code == kExitFinished) {
    show_sample(run);
  }
  return outcome.exit_code;
}

/// One of the run's events; the run does not depend on it.
void log_event(const PreparedRun& run, const char* kind, const std::string& text) {
  if (const Status logged = run.home->event(kind, text); !logged) {
    log_warning(fmt::format("index_incomplete {}", logged.error().message));
  }
}

bool in_processes(const configs::ParallelSection& parallel) {
  return parallel.ranks > 1 && parallel.transport != "inproc";
}

Result<RunFinished> run_generation(PreparedRun& run, ProcessRanks& processes) {
  TRAIN_RETURN_IF_ERROR(run.memory.make_room(run.plan, run.place));
  auto report = open_report(run);
  if (!report) {
    return report.error();
  }
  const std::shared_ptr<RunReport> kept = std::move(report).value();
  auto outcome =
      in_processes(run.config().parallel) ? processes.run(run, kept) : run_here(run, kept);
  run.status->note(kept->progress());
  return outcome;
}

/// The run's status where no observer is there to write it; the run does not depend on it.
void write_status(const PreparedRun& run, std::optional<RunFinished> outcome) {
  if (run.status == nullptr) {  // a simulation
    return;
  }
  RunStatus status{.base = {},
                   .phase = outcome ? "over" : "starting",
                   .generation = run.generation,
                   .ranks = run.config().parallel.ranks,
                   .now_ns = steady_now_ns(),
                   .progress = {.step = outcome ? outcome->step : run.first_step()},
                   .outcome = std::move(outcome)};
  if (const Status written = run.status->write(std::move(status)); !written) {
    log_warning(fmt::format("status_not_written {}", written.error().message));
  }
}

RunFinished stopped_by(int signal, const RunFinished& outcome) {
  // Whoever ends a job may end some of its processes before the others.
  return {outcome.step, kExitStopped,
          fmt::format("stopped by signal {} as {}; what was committed stands; run it again, "
                      "without --fresh, to go on",
                      signal, outcome.text)};
}

RunFinished without_nodes(const PreparedRun& run, const NodesMet& met, const RunFinished& outcome) {
  const std::string text =
      fmt::format("node {} has not come back within {} s of its loss (recovery.node_wait_s)",
                  fmt::join(met.missing, ", "), run.config().recovery.node_wait_s);
  log_error(text);
  return {outcome.step, kExitStopped, text + "; run it again to go on from the newest checkpoint"};
}

/// The end of a run over several nodes that loses its ranks again and again. Only a job that has
/// come further is worth another start.
RunFinished given_up(const PreparedRun& run, RunFinished outcome) {
  if (run.config().parallel.nodes > 1 && run.checkpoint &&
      run.checkpoint->step > run.job_first_step) {
    log_error(outcome.text);
    outcome.exit_code = kExitStopped;
  }
  return outcome;
}

/// Where the next generation goes on; every node has what its ranks need for it.
Status find_start(PreparedRun& run, std::int64_t reported, const std::vector<NodeSteps>& elsewhere,
                  const std::optional<OtherNodes>& others) {
  TRAIN_RETURN_IF_ERROR(find_start_again(run, reported, elsewhere));
  if (!others) {
    return {};
  }
  const Status restored = others->restore(run);
  if (restored) {
    return {};
  }
  log_warning(fmt::format("memory_not_restored {}", restored.error().message));
  run.memory.forget();
  return find_start_again(run, reported);
}

}  // namespace

Result<RunFinished> run_generations(PreparedRun& run, const GenerationRunner& run_generation,
                                    const std::optional<OtherNodes>& others) {
  Respawns respawns(run.config().recovery, run.first_step());
  while (true) {
    write_status(run, std::nullopt);
    auto outcome = run_generation(run);
    if (!outcome || !outcome->rank_lost) {
      return outcome;
    }
    if (const int signal = stop_signal(); signal != 0) {
      return stopped_by(signal, *outcome);
    }
    if (!can_respawn(run.config())) {
      return outcome;
    }
    log_warning(fmt::format("rank_lost {}", outcome->text));
    log_event(run, "rank_lost", outcome->text);
    ++run.generation;
    std::vector<NodeSteps> elsewhere;
    if (others) {
      const auto met = others->meet(run);
      if (!met) {
        return met.error();
      }
      if (!met->complete()) {
        const int signal = stop_signal();
        return signal != 0 ? stopped_by(signal, *outcome) : without_nodes(run, *met, *outcome);
      }
      elsewhere = met->held;
    }
    if (const Status found = find_start(run, outcome->step, elsewhere, others); !found) {
      return found.error();
    }
    if (!respawns.allow(run.first_step()) && !take_fewer_ranks(run)) {
      return given_up(run, *std::move(outcome));
    }
    const std::string text = fmt::format("generation={} step={} ranks={}", run.generation,
                                         run.first_step(), run.config().parallel.ranks);
    log_info("respawned " + text);
    log_event(run, "respawned", text);
  }
}

namespace {

int run_to_end(PreparedRun& run) {
  const configs::ParallelSection& parallel = run.config().parallel;
  log_info(fmt::format(
      "run_started directory={} step={} steps={} ranks={} strategy={} threads={} peak={}FLOP/s",
      run.directory.root.string(), run.first_step(), run.config().run.steps, parallel.ranks,
      parallel.strategy,
      threads_per_rank(run.config().runtime.threads, parallel.ranks / parallel.nodes),
      format_count(run.peak_flops)));
  log_event(
      run, run.first_step() > 0 ? "resumed" : "started",
      fmt::format("step={} ranks={} tag={}", run.first_step(), parallel.ranks, run.home->tag()));
  if (run.config().precision.reduce != "fp32") {
    log_warning(
        "precision.reduce = \"bf16\": the result now depends on the number of ranks; it stays the "
        "same for one number");
  }
  if (run.profile) {
    if (const Status made = prepare_profile(profile_directory(run.directory.root)); !made) {
      return report_error(made.error());
    }
  }
  run.status = std::make_shared<StatusFile>(
      run.directory.root,
      status_base(run.directory.root.filename().string(), run.config().run.steps));
  ProcessRanks processes;
  const Result<RunFinished> outcome = run_generations(
      run, [&processes](PreparedRun& prepared) { return run_generation(prepared, processes); },
      run.config().parallel.nodes > 1
          ? std::optional(OtherNodes{
                .meet = [&processes](const auto& prepared) { return processes.meet(prepared); },
                .restore = [&processes](auto& prepared) { return processes.restore(prepared); }})
          : std::nullopt);
  write_status(run, outcome ? *outcome
                            : RunFinished{run.first_step(), outcome.error().exit_code(),
                                          outcome.error().message});
  if (!outcome) {
    return report_error(outcome.error());
  }
  log_event(run, outcome->exit_code == kExitFinished ? "finished" : "stopped", outcome->text);
  const bool shown = !run.profile || show_profile(run);
  const int exit_code = finish(run, *outcome);
  return exit_code == kExitFinished && !shown ? kExitFailure : exit_code;
}

}  // namespace

int run_command(const cli::RunOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.nodes) {
    set.push_back(fmt::format("parallel.nodes={}", *options.nodes));
  }
  const auto config = configs::load_config(options.config, set);
  if (!config) {
    return report_error(config.error());
  }
  auto plan = plan_run(*config);
  if (!plan) {
    return report_error(plan.error());
  }
  if (options.dry_run) {
    std::fputs(describe_plan(*plan).c_str(), stdout);
    return kExitFinished;
  }
  if (const Status there = engine::check_device(plan->config.runtime.device, plan->engine.shape);
      !there) {
    return report_error(there.error());
  }
  const auto place = find_place(config->parallel.nodes, process_environment());
  if (!place) {
    return report_error(place.error());
  }
  if (!place->head()) {
    return run_node(*plan, *place);
  }
  if (in_processes(config->parallel)) {
    if (const Status free = check_network(config->parallel); !free) {
      return report_error(free.error());
    }
  }
  NodeMemory memory;
  if (const Status room = memory.make_room(*plan, *place); !room) {
    return report_error(room.error());
  }
  auto run = prepare_run(std::move(plan).value(), options.fresh);
  if (!run) {
    return report_error(run.error());
  }
  run->memory = std::move(memory);
  run->place = *place;
  run->profile = options.profile;
  if (options.fresh) {
    // The same command would begin yet another run.
    log_info(
        fmt::format("fresh_run directory={}; resume it with --set run.name={}, without --fresh",
                    run->directory.root.string(), run->directory.root.filename().string()));
  }
  if (run->nothing_to_do()) {
    log_info(
        fmt::format("run_finished all {} steps are done, nothing to do; raise run.steps to "
                    "train on, or start anew with --fresh",
                    run->config().run.steps));
    return kExitFinished;
  }
  run->peak_flops = measure_peak_flops(run->config());
  return run_to_end(*run);
}

}  // namespace train::actors
