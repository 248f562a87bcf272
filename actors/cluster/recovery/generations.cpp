#include "actors/cluster/recovery/generations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "actors/cluster/recovery/process_ranks.hpp"
#include "actors/cluster/recovery/verdict.hpp"
#include "actors/head/run_plan.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"

namespace train::actors {
namespace {

/// Whether the run can be one of the nodes that have come. A run of those that took part needs no
/// other plan.
struct Room {
  Status all, without;
};

Room room_for(const PreparedRun& run, const Membership& met) {
  const auto fits = [&run](std::int64_t nodes) {
    const auto plan = plan_of_nodes(run, nodes);
    return plan ? Status() : Status(plan.error());
  };
  if (met.cut) {
    return {*met.cut, *met.cut};
  }
  const auto returned = static_cast<std::int64_t>(met.returned.size());
  return {fits(met.come() + returned), met.complete() ? Status() : fits(met.come())};
}

/// What follows a start of all ranks that was lost. Counts it.
HeadStep after_placed(PreparedRun& run, Respawns& respawns, bool counted,
                      std::optional<RunPlan>& fewer) {
  HeadFacts facts;
  const bool allowed = !counted || respawns.allow(run.first_step());
  facts.set(HeadFact::allowed, allowed);
  if (!allowed) {
    fewer = plan_of_fewer(run);
    const auto saved = run.checkpoint ? std::optional(run.checkpoint->step) : std::nullopt;
    facts.set(HeadFact::fewer, fewer.has_value());
    facts.set(HeadFact::saved,
              worth_another_job(run.config().parallel.nodes, saved, run.job_first_step));
  }
  return decide(HeadState::restoring, HeadEvent::placed, facts);
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
void log_nodes(const PreparedRun& run, const Membership& met) {
  if (!met.complete()) {
    log_warning(fmt::format(
        "nodes_lost {} not come back within {} s of the loss (recovery.node_wait_s); going on with "
        "the nodes that are left",
        missing_have(met, run.members), run.config().recovery.node_wait_s));
  }
  if (!met.returned.empty()) {
    const std::string text = fmt::format("{} come back", nodes_have(met.returned));
    log_info("nodes_returned " + text);
    log_event(run, "nodes_returned", text);
  }
}

/// What follows the meeting. Takes the nodes that the run goes on with; `met` is of them then. The
/// run is over: its outcome. Errors: those of take_nodes().
Result<std::optional<RunFinished>> after_meeting(PreparedRun& run, Membership& met,
                                                 const RunFinished& outcome) {
  const int signal = stop_signal();
  const Room room = met.same() ? Room() : room_for(run, met);
  HeadFacts facts;
  facts.set(HeadFact::missing, !met.complete() || met.cut);
  facts.set(HeadFact::signalled, signal != 0);
  facts.set(HeadFact::room, room.all.ok());
  facts.set(HeadFact::room_without, room.without.ok());
  const HeadStep step =
      decide(HeadState::meeting, met.same() ? HeadEvent::met : HeadEvent::met_others, facts);
  if (step.next == HeadState::over) {
    const bool stopped = signal != 0;
    RunFinished end = ended_by(step, outcome,
                               {.seconds = run.config().recovery.node_wait_s,
                                .signal = signal,
                                .text = stopped ? outcome.text : room.without.error().message,
                                .nodes = missing_have(met, run.members)});
    if (!stopped) {
      log_error(end.text);
    }
    return std::optional(std::move(end));
  }
  if (step.has(HeadAction::refuse_launcher)) {
    log_warning(fmt::format("nodes_not_taken {} come back, and the run has no place for more: {}",
                            nodes_have(met.returned), room.all.error().message));
    met.returned.clear();
  }
  if (step.has(HeadAction::take_nodes)) {
    log_nodes(run, met);
    TRAIN_RETURN_IF_ERROR(
        take_nodes(run, met.come() + static_cast<std::int64_t>(met.returned.size())));
  }
  return std::optional<RunFinished>();
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
  if (met.missing.empty()) {
    return "the head's network has";
  }
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

std::optional<RunPlan> plan_of_fewer(const PreparedRun& run) {
  const std::int64_t most = run.config().parallel.nodes == 1 ? run.config().parallel.ranks - 1 : 0;
  for (std::int64_t ranks = most; ranks > 0; --ranks) {
    if (auto plan = plan_with(run.plan, 1, ranks)) {
      return std::move(plan).value();
    }
  }
  return std::nullopt;
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

namespace {

/// Ranks for the next phase of the objective; or for that of an earlier step, where its state is
/// what is left. `reported`: see find_start_again().
Status find_phase(PreparedRun& run, std::int64_t reported) {
  ++run.generation;
  TRAIN_RETURN_IF_ERROR(find_start_again(run, reported));
  TRAIN_RETURN_IF_ERROR(enter_phase(run.plan, run.first_step()));
  const std::string text = fmt::format("generation={} step={}", run.generation, run.first_step());
  log_info("next_phase " + text);
  log_event(run, "next_phase", text);
  return {};
}

}  // namespace

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
    if (outcome->end == GenerationEnd::phase_over && signal == 0) {
      TRAIN_RETURN_IF_ERROR(find_phase(run, outcome->step));
      continue;
    }
    const HeadStep after =
        others && others->after() ? *others->after() : after_ranks(*outcome, run.plan, signal);
    if (after.next == HeadState::over) {
      return ended_by(after, *std::move(outcome), {.signal = signal});
    }
    if (outcome->end == GenerationEnd::rank_lost) {
      log_warning(fmt::format("rank_lost {}", outcome->text));
      log_event(run, "rank_lost", outcome->text);
    }
    ++run.generation;
    auto met = others ? others->meet(run) : Result<Membership>(Membership());
    TRAIN_RETURN_IF_ERROR(met);
    const auto ended = after_meeting(run, *met, *outcome);
    TRAIN_RETURN_IF_ERROR(ended);
    if (*ended) {
      return **ended;
    }
    if (met->same()) {
      TRAIN_RETURN_IF_ERROR(find_start(run, outcome->step, met->held, others));
    } else {
      TRAIN_RETURN_IF_ERROR(find_start_of_others(run, outcome->step, *met, *others));
    }
    std::optional<RunPlan> fewer;
    const HeadStep placed = after_placed(run, respawns, met->same(), fewer);
    if (placed.next == HeadState::over) {
      if (placed.exit == Exit::stopped) {
        log_error(outcome->text);
      }
      return ended_by(placed, *std::move(outcome), {});
    }
    if (placed.has(HeadAction::take_fewer)) {
      run.plan = *std::move(fewer);
    }
    if (run.plan.engine.phase_step >= 0) {
      TRAIN_RETURN_IF_ERROR(enter_phase(run.plan, run.first_step()));
    }
    const std::string text =
        fmt::format("generation={} step={} ranks={} nodes={}", run.generation, run.first_step(),
                    run.config().parallel.ranks, run.config().parallel.nodes);
    log_info("respawned " + text);
    log_event(run, "respawned", text);
  }
}

}  // namespace train::actors
