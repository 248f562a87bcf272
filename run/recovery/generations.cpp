#include "run/recovery/generations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "run/plan/run_plan.hpp"
#include "run/recovery/verdict.hpp"

namespace train::run {
namespace {

/// Logs changes in the set of nodes.
void log_nodes(const PreparedRun& run, const Membership& met) {
  if (!met.complete()) {
    const std::string text = fmt::format(
        "{} did not come back within {} s of the loss (recovery.node_wait_s); going on with the "
        "nodes "
        "that are left",
        met.missing_names(), run.config().recovery.node_wait_s);
    log_warning("nodes_lost " + text);
    log_event(run, "nodes_lost", text);
  }
  if (!met.returned.empty()) {
    const std::string text = fmt::format("{} came back", node_names(met.returned));
    log_info("nodes_returned " + text);
    log_event(run, "nodes_returned", text);
  }
}

/// Head of the run from its first meeting to its end, driven by the table.
class Generations {
 public:
  Generations(PreparedRun& run, const GenerationRunner& run_generation, OtherNodes* others)
      : run_(run),
        run_generation_(run_generation),
        others_(others),
        respawns_(run.config().recovery, run.first_step()) {
    outcome_.step = run.first_step();
  }

  Result<RunFinished> live() {
    write_status(run_, std::nullopt);
    while (course_.state() != HeadState::over) {
      const Status done = course_.state() == HeadState::meeting     ? meet()
                          : course_.state() == HeadState::restoring ? restore()
                                                                    : train();
      if (!done) {
        for (const HeadEvent event : {HeadEvent::head_failed, HeadEvent::ranks_gone}) {
          hear(event, {}, {.text = done.error().message}, done.error().exit_code());
        }
        return done.error();
      }
    }
    RunFinished end = course_.outcome(outcome_.step);
    end.end = outcome_.end;  // The end of its last ranks.
    return end;
  }

 private:
  HeadStep hear(HeadEvent event, HeadFacts facts, LineWords words = {},
                std::int32_t told = kExitFailure) {
    const bool asked = words.signal != 0;
    const HeadStep step = course_.hear(event, facts, std::move(words), told);
    if (step.next == HeadState::over && step.exit == Exit::stopped && !asked) {
      log_error(course_.outcome(outcome_.step).text);
    }
    if (others_ != nullptr && step.has(HeadAction::tell_again)) {
      others_->join_again();
    }
    if (others_ != nullptr && step.has(HeadAction::tell_end)) {
      others_->end(course_.outcome(outcome_.step).exit_code);
    }
    return step;
  }

  Status meet() {
    met_ = TRAIN_TRY(others_ != nullptr ? others_->meet() : Result<Membership>(Membership()));
    const bool first = run_.generation == 0;
    const configs::RecoverySection& recovery = run_.config().recovery;
    const int signal = stop_signal();
    const std::int64_t all = met_.come() + static_cast<std::int64_t>(met_.returned.size());
    const auto plan_of = [&](std::int64_t nodes, bool now) -> Result<RunPlan> {
      return first || now ? run_.plan : met_.cut ? *met_.cut : plan_of_nodes(run_, nodes);
    };
    auto plan = plan_of(all, met_.same());
    const auto without = plan_of(met_.come(), met_.complete());
    const HeadFacts facts = HeadFacts()
                                .set(HeadFact::first, first)
                                .set(HeadFact::missing, !met_.complete())
                                .set(HeadFact::signalled, signal != 0)
                                .set(HeadFact::room, plan.ok())
                                .set(HeadFact::room_without, without.ok());
    const HeadStep step =
        hear(met_.same() ? HeadEvent::met : HeadEvent::met_others, facts,
             {.seconds = first ? recovery.start_wait_s : recovery.node_wait_s,
              .signal = signal,
              .text = !without.ok() && signal == 0 ? without.error().message : outcome_.text,
              .nodes = met_.complete() ? "" : met_.missing_names()});
    if (step.has(HeadAction::refuse_launcher)) {
      log_warning(fmt::format("nodes_not_taken {} came back, but the run has no place for more: {}",
                              node_names(met_.returned), plan.error().message));
      met_.returned.clear();
      plan = without;
    }
    if (step.has(HeadAction::take_nodes)) {
      log_nodes(run_, met_);
      run_.plan = std::move(plan).value();
      run_.nodes.position.nodes = run_.config().parallel.nodes;
    }
    return {};
  }

  /// Finds the state to resume from, and gives every node what its ranks need of it. The next phase
  /// of an objective may be that of an earlier step, if only its state is left.
  Status restore() {
    const bool same = met_.same();
    TRAIN_RETURN_IF_ERROR(verify_doubted());
    std::vector<std::int64_t> members = met_.returned;
    std::set_difference(run_.nodes.members.begin(), run_.nodes.members.end(), met_.missing.begin(),
                        met_.missing.end(), std::back_inserter(members));
    std::sort(members.begin(), members.end());
    while (true) {
      TRAIN_RETURN_IF_ERROR(find_start_again(run_, outcome_.step, met_.held));
      const Status placed = others_ == nullptr ? Status() : others_->place(members);
      if (placed) {
        return start(same);
      }
      const auto facts = HeadFacts().set(HeadFact::in_memory, run_.memory.start().has_value());
      if (hear(HeadEvent::not_placed, facts).has(HeadAction::go_without)) {
        log_warning(fmt::format("no_room {}", placed.error().message));
        return start(same);
      }
      log_warning(fmt::format("memory_not_restored {}", placed.error().message));
      run_.memory.resume_from(std::nullopt);
      met_.held.clear();
    }
  }

  /// Verifies a checkpoint that a rank reported as damaged. If it is, it is set aside, and the run
  /// resumes from an older one; their number is finite. If it is intact, the rank or its path to
  /// the disk is at fault: that start is lost.
  Status verify_doubted() {
    older_ = false;
    if (!doubted_) {
      return {};
    }
    const checkpoint::Candidate doubted = *std::exchange(doubted_, std::nullopt);
    older_ = TRAIN_TRY(run_.store->set_aside_if_damaged(doubted));
    if (!older_) {
      outcome_.text += fmt::format(
          "; the head has verified {} and finds no damage: memory, disk or network of that rank's "
          "node is at fault",
          doubted.path.string());
      log_warning(fmt::format("checkpoint_verified {}", outcome_.text));
    }
    return {};
  }

  /// `same`: with the same nodes; then consecutive starts without progress are counted.
  Status start(bool same) {
    const configs::ParallelSection& parallel = run_.config().parallel;
    Result<RunPlan> fewer = failure("not needed");
    const bool phase = outcome_.end == GenerationEnd::phase_over;
    const bool again = can_respawn(run_.plan);
    if (older_) {
      respawns_ = Respawns(run_.config().recovery, run_.first_step());
    }
    const bool allowed = phase || older_ || !same || (again && respawns_.allow(run_.first_step()));
    HeadFacts facts = HeadFacts().set(HeadFact::allowed, allowed);
    if (!allowed) {
      fewer = largest_plan(run_.plan, 1, parallel.nodes == 1 ? parallel.ranks - 1 : 0);
      const auto saved =
          run_.start.checkpoint ? std::optional(run_.start.checkpoint->step) : std::nullopt;
      facts.set(HeadFact::fewer, again && fewer.ok());
      facts.set(HeadFact::saved, worth_another_job(parallel.nodes, saved, run_.job_first_step));
    }
    const HeadStep step = hear(HeadEvent::placed, facts, {.text = outcome_.text});
    if (step.next == HeadState::over) {
      return {};
    }
    if (step.has(HeadAction::take_fewer)) {
      run_.plan = std::move(fewer).value();
    }
    if (run_.plan.engine.phase_step >= 0) {
      TRAIN_RETURN_IF_ERROR(enter_phase(run_.plan, run_.first_step()));
    }
    const std::string text = fmt::format("generation={} step={} ranks={} nodes={}", run_.generation,
                                         run_.first_step(), parallel.ranks, parallel.nodes);
    const char* const event = phase ? "next_phase" : "respawned";
    log_info(fmt::format("{} {}", event, text));
    log_event(run_, event, text);
    write_status(run_, std::nullopt);
    return {};
  }

  Status train() {
    outcome_ = TRAIN_TRY(run_generation_(run_));
    const int signal = stop_signal();
    course_ = Verdict(state_of(outcome_.end));
    const HeadFacts facts = HeadFacts()
                                .set(HeadFact::signalled, signal != 0)
                                .set(HeadFact::respawn, can_respawn(run_.plan));
    const HeadStep step = hear(HeadEvent::ranks_gone, facts,
                               {.signal = signal, .text = outcome_.text}, outcome_.exit_code);
    if (step.next == HeadState::over) {
      return {};
    }
    if (step.has(HeadAction::verify)) {
      log_warning(fmt::format("damage_found {}", outcome_.text));
      log_event(run_, "damage_found", outcome_.text);
      doubted_ = run_.start.checkpoint;
    }
    if (outcome_.end == GenerationEnd::rank_lost) {
      log_warning(fmt::format("rank_lost {}", outcome_.text));
      log_event(run_, "rank_lost", outcome_.text);
    }
    met_ = {};  // No meeting for the next phase: it only concerns this node.
    ++run_.generation;
    return {};
  }

  PreparedRun& run_;
  const GenerationRunner& run_generation_;
  OtherNodes* others_;  // Null: there are no other nodes.
  Respawns respawns_;
  Verdict course_{HeadState::meeting};            // State while no rank runs.
  Membership met_;                                // Members of this generation.
  std::optional<checkpoint::Candidate> doubted_;  // Reported as damaged by the last ranks.
  bool older_ = false;   // The reported checkpoint was damaged, and an older one follows.
  RunFinished outcome_;  // The last ranks' outcome.
};

}  // namespace

std::string node_names(std::span<const std::int64_t> nodes) {
  return nodes.size() == 1 ? fmt::format("node {}", nodes.front())
                           : fmt::format("nodes {}", fmt::join(nodes, ", "));
}

std::string Membership::missing_names() const {
  return missing.empty() ? "the head's network" : node_names(missing);
}

bool Respawns::allow(std::int64_t step) {
  lost_ = step > step_ ? 1 : lost_ + 1;
  step_ = std::max(step_, step);
  const bool allowed = lost_ <= limit_;
  lost_ = allowed ? lost_ : 0;
  return allowed;
}

bool worth_another_job(std::int64_t nodes, std::optional<std::int64_t> checkpoint,
                       std::int64_t job_first_step) {
  return nodes > 1 && checkpoint && *checkpoint > job_first_step;
}

Result<RunFinished> run_generations(PreparedRun& run, const GenerationRunner& run_generation,
                                    OtherNodes* others) {
  return Generations(run, run_generation, others).live();
}

}  // namespace train::run
