#include "actors/cluster/recovery/generations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "actors/cluster/recovery/process_ranks.hpp"
#include "actors/cluster/recovery/verdict.hpp"
#include "actors/head/run_plan.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"

namespace train::actors {
namespace {

RunFinished stopped_by(int signal, const RunFinished& outcome) {
  // Whoever ends a job may end some of its processes before the others.
  return {outcome.step, kExitStopped,
          fmt::format("stopped by signal {} as {}; what was committed stands; run it again, "
                      "without --fresh, to go on",
                      signal, outcome.text)};
}

/// Of nodes that have not come to the meeting.
std::string lost_text(const PreparedRun& run, const Membership& met) {
  return fmt::format("{} not come back within {} s of the loss (recovery.node_wait_s)",
                     missing_have(met, run.members), run.config().recovery.node_wait_s);
}

RunFinished without_nodes(const std::string& lost, const Error& why, const RunFinished& outcome) {
  const std::string text =
      fmt::format("{}, and the run cannot go on without: {}", lost, why.message);
  log_error(text);
  return {outcome.step, kExitStopped, lost + "; run it again to go on from the newest checkpoint"};
}

/// The end of a run over several nodes that loses its ranks again and again.
RunFinished given_up(const PreparedRun& run, RunFinished outcome) {
  const auto saved = run.checkpoint ? std::optional(run.checkpoint->step) : std::nullopt;
  if (worth_another_job(run.config().parallel.nodes, saved, run.job_first_step)) {
    log_error(outcome.text);
    outcome.exit_code = kExitStopped;
  }
  return outcome;
}

/// What was to be gone on from in memory is not there for everybody: a checkpoint is.
Status find_start_without_memory(PreparedRun& run, std::int64_t reported, const Error& why) {
  log_warning(fmt::format("memory_not_restored {}", why.message));
  run.memory.forget();
  return find_start_again(run, reported);
}

/// Where the next generation goes on; every node has what its ranks need for it.
Status find_start(PreparedRun& run, std::int64_t reported, const std::vector<NodeSteps>& elsewhere,
                  ProcessRanks* others) {
  TRAIN_RETURN_IF_ERROR(find_start_again(run, reported, elsewhere));
  const Status restored = others ? others->restore(run) : Status();
  return restored ? Status() : find_start_without_memory(run, reported, restored.error());
}

/// The run is one of the nodes that have come, if it can be: else those that took part go on
/// without those that are back, which `met` has no more then. Errors: they cannot.
Status take_nodes_met(PreparedRun& run, Membership& met) {
  if (met.cut) {
    return *met.cut;
  }
  const auto returned = static_cast<std::int64_t>(met.returned.size());
  const Status all = take_nodes(run, met.come() + returned);
  if (all || returned == 0) {
    return all;
  }
  log_warning(fmt::format("nodes_not_taken {} come back, and the run has no place for more: {}",
                          nodes_have(met.returned), all.error().message));
  met.returned.clear();
  return met.complete() ? Status() : take_nodes(run, met.come());
}

/// The same for other nodes than before. REQUIRES: `run` is one of so many.
Status find_start_of_others(PreparedRun& run, std::int64_t reported, const Membership& met,
                            ProcessRanks& others) {
  TRAIN_RETURN_IF_ERROR(find_start_again(run, reported, met.held));
  const Status placed = others.change_members(run, met.positions(), met.returned);
  if (placed) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(find_start_without_memory(run, reported, placed.error()));
  std::vector<std::int64_t> same(run.members.size());
  std::iota(same.begin(), same.end(), 0);
  if (const Status again = others.change_members(run, same, {}); !again) {
    log_warning(fmt::format("no_room {}", again.error().message));  // or lost: missed at the start
  }
  return {};
}

/// What the log says of other nodes than before.
void log_nodes(const PreparedRun& run, const Membership& met, const std::string& lost) {
  if (!met.complete()) {
    log_warning(fmt::format("nodes_lost {}; going on with the nodes that are left", lost));
  }
  if (!met.returned.empty()) {
    const std::string text = fmt::format("{} come back", nodes_have(met.returned));
    log_info("nodes_returned " + text);
    log_event(run, "nodes_returned", text);
  }
}

}  // namespace

std::vector<std::int64_t> Membership::positions() const {
  std::vector<std::int64_t> positions;
  for (std::int64_t position = 0; position <= static_cast<std::int64_t>(held.size()); ++position) {
    if (std::find(missing.begin(), missing.end(), position) == missing.end()) {
      positions.push_back(position);
    }
  }
  return positions;
}

std::string nodes_have(std::span<const std::int64_t> nodes) {
  return nodes.size() == 1 ? fmt::format("node {} has", nodes.front())
                           : fmt::format("nodes {} have", fmt::join(nodes, ", "));
}

std::string missing_have(const Membership& met, std::span<const std::int64_t> members) {
  std::vector<std::int64_t> nodes;
  for (const std::int64_t position : met.missing) {
    nodes.push_back(members[static_cast<std::size_t>(position)]);
  }
  return nodes_have(nodes);
}

bool Respawns::allow(std::int64_t step) {
  if (step > step_) {
    step_ = step;
    lost_ = 0;
  }
  if (++lost_ <= limit_) {
    return true;
  }
  lost_ = 0;
  return false;
}

bool take_fewer_ranks(PreparedRun& run) {
  const std::int64_t most = run.config().parallel.nodes == 1 ? run.config().parallel.ranks - 1 : 0;
  for (std::int64_t ranks = most; ranks > 0; --ranks) {
    if (auto plan = plan_with(run.plan, 1, ranks)) {
      run.plan = std::move(plan).value();
      return true;
    }
  }
  return false;
}

Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes) {
  const configs::ParallelSection& parallel = run.config().parallel;
  const bool more = nodes > parallel.nodes;
  const std::int64_t all = more ? run.ranks_at_start : parallel.ranks;
  const std::int64_t all_nodes = more ? run.nodes_at_start : parallel.nodes;
  Result<RunPlan> plan = failure("no node is left");
  if (nodes == all_nodes) {  // whose ranks need not be the same number on each
    plan = plan_with(run.plan, nodes, all);
  }
  for (std::int64_t each = all / all_nodes; !plan && nodes > 0 && each > 0; --each) {
    plan = plan_with(run.plan, nodes, each * nodes);
  }
  return plan;
}

Status take_nodes(PreparedRun& run, std::int64_t nodes) {
  auto plan = plan_of_nodes(run, nodes);
  TRAIN_RETURN_IF_ERROR(plan);
  run.plan = std::move(plan).value();
  run.position.nodes = nodes;
  return {};
}

bool worth_another_job(std::int64_t nodes, std::optional<std::int64_t> checkpoint,
                       std::int64_t job_first_step) {
  return nodes > 1 && checkpoint && *checkpoint > job_first_step;
}

Result<RunFinished> run_generations(PreparedRun& run, const GenerationRunner& run_generation,
                                    ProcessRanks* others) {
  Respawns respawns(run.config().recovery, run.first_step());
  while (true) {
    write_status(run, std::nullopt);
    auto outcome = run_generation(run);
    if (!outcome) {
      return outcome;
    }
    const int signal = stop_signal();
    const Next next = next_after(*outcome, run.plan, signal);
    if (next != Next::next_generation) {
      return next == Next::run_over ? outcome : stopped_by(signal, *outcome);
    }
    if (outcome->end == GenerationEnd::rank_lost) {
      log_warning(fmt::format("rank_lost {}", outcome->text));
      log_event(run, "rank_lost", outcome->text);
    }
    ++run.generation;
    auto met = others ? others->meet(run) : Result<Membership>(Membership());
    TRAIN_RETURN_IF_ERROR(met);
    if (const int late = stop_signal(); late != 0 && !met->complete()) {
      return stopped_by(late, *outcome);
    }
    const std::string lost = met->complete() ? std::string() : lost_text(run, *met);
    const Status taken = met->same() ? Status() : take_nodes_met(run, *met);
    if (!taken) {
      return without_nodes(lost, taken.error(), *outcome);
    }
    if (met->same()) {
      TRAIN_RETURN_IF_ERROR(find_start(run, outcome->step, met->held, others));
      if (!respawns.allow(run.first_step()) && !take_fewer_ranks(run)) {
        return given_up(run, *std::move(outcome));
      }
    } else {
      log_nodes(run, *met, lost);
      TRAIN_RETURN_IF_ERROR(find_start_of_others(run, outcome->step, *met, *others));
    }
    const std::string text =
        fmt::format("generation={} step={} ranks={} nodes={}", run.generation, run.first_step(),
                    run.config().parallel.ranks, run.config().parallel.nodes);
    log_info("respawned " + text);
    log_event(run, "respawned", text);
  }
}

}  // namespace train::actors
