#include "actors/cluster/recovery/verdict.hpp"

#include <fmt/format.h>

#include "base/exit_codes.hpp"

namespace train::actors {

FailureVerdict::Heard FailureVerdict::hear(const RankFailed& failure) {
  if (cause_ || (failure.consequence && consequence_)) {
    return Heard::nothing_new;
  }
  (failure.consequence ? consequence_ : cause_) = failure;
  return failure.consequence ? Heard::consequence : Heard::cause;
}

bool FailureVerdict::conclude() {
  if (cause_) {
    return false;
  }
  cause_ = consequence_;
  return true;
}

RunFinished ended_by(const RankFailed& cause, std::int64_t step) {
  return {step, cause.exit_code, fmt::format("rank {} failed: {}", cause.rank, cause.text),
          cause.lost || cause.consequence ? GenerationEnd::rank_lost : GenerationEnd::run_over};
}

void FirstLoss::hear(const WorkerEnd& end) {
  const std::lock_guard lock(mutex_);
  if (end.unasked && !end_) {
    end_ = end;
  }
}

RunFinished FirstLoss::cause_of(RunFinished outcome) const {
  const std::lock_guard lock(mutex_);
  if (outcome.end != GenerationEnd::run_over && end_) {
    outcome.text = fmt::format("rank {} failed: its process ended: {}", end_->rank, end_->text);
    outcome.end = end_->killed ? GenerationEnd::rank_lost : GenerationEnd::run_over;
  }
  return outcome;
}

Next next_after(const RunFinished& outcome, const RunPlan& plan, int signal) {
  if (outcome.end == GenerationEnd::run_over) {
    return Next::run_over;
  }
  if (signal != 0) {
    return Next::stopped_by_signal;
  }
  return can_respawn(plan) ? Next::next_generation : Next::run_over;
}

NodeEnd node_end(std::int64_t node, bool in_order, const std::optional<GenerationOver>& over,
                 bool head_lost, const RunPlan& plan) {
  if (in_order) {
    return {.exit_code = kExitFinished};
  }
  if (over && over->without) {
    return {.exit_code = kExitFinished,
            .warning = fmt::format("node {}: comes too late, the run goes on without it", node)};
  }
  if (over) {
    return {.again = over->again, .exit_code = over->exit_code};
  }
  if (head_lost && can_respawn(plan)) {
    return {.again = true};  // it may come back
  }
  return {.error = fmt::format("node {}: the head is gone", node)};
}

}  // namespace train::actors
