#include "actors/cluster/recovery/verdict.hpp"

#include <utility>

#include "base/check.hpp"

namespace train::actors {

bool Verdict::over() const {
  return SetOf<HeadState>{HeadState::ending_loss, HeadState::ending_back, HeadState::ending_run}
      .has(state_);
}

HeadStep Verdict::take(const HeadStep& step) {
  if (step.exit != Exit::none) {
    last_ = step;
  }
  state_ = step.next;
  return step;
}

HeadStep Verdict::hear(const RankFailed& failure, HeadFacts facts) {
  const HeadStep step = decide(state_, event_of(failure), facts);
  if (step.next != state_) {
    cause_ = failure;
  }
  return take(step);
}

HeadStep Verdict::conclude() {
  HeadFacts facts;
  facts.set(HeadFact::lost, cause_.lost);
  return hear(HeadEvent::cause_time_over, facts);
}

HeadStep Verdict::hear(HeadEvent event, HeadFacts facts) {
  return take(decide(state_, event, facts));
}

RunFinished Verdict::outcome(std::int64_t step) const {
  return outcome(step, {.rank = cause_.rank, .text = cause_.text});
}

RunFinished Verdict::outcome(std::int64_t step, const LineWords& words) const {
  TRAIN_CHECK(over(), "ranks are to go on, in state {}", name_of(state_));
  return {step, exit_code_of(last_.exit, cause_.exit_code), fill_in(last_.line, words),
          end_of(state_)};
}

void FirstLoss::hear(const WorkerEnd& end) {
  const std::lock_guard lock(mutex_);
  if (end.unasked && !end_) {
    end_ = end;
  }
}

RunFinished FirstLoss::cause_of(RunFinished outcome) const {
  const std::lock_guard lock(mutex_);
  if (!end_) {
    return outcome;
  }
  const HeadStep step =
      decide(state_of(outcome.end),
             end_->killed ? HeadEvent::worker_killed : HeadEvent::worker_crashed, {});
  if (step.exit != Exit::none) {
    outcome.exit_code = exit_code_of(step.exit, outcome.exit_code);
    outcome.text = fill_in(step.line, {.rank = end_->rank, .text = end_->text});
    outcome.end = end_of(step.next);
  }
  return outcome;
}

HeadStep after_ranks(const RunFinished& outcome, const RunPlan& plan, int signal) {
  HeadFacts facts;
  facts.set(HeadFact::signalled, signal != 0);
  facts.set(HeadFact::respawn, can_respawn(plan));
  return decide(state_of(outcome.end), HeadEvent::ranks_gone, facts);
}

RunFinished ended_by(const HeadStep& step, RunFinished outcome, LineWords words) {
  TRAIN_CHECK(step.next == HeadState::over, "the run goes on, in state {}", name_of(step.next));
  if (words.text.empty()) {
    words.text = outcome.text;
  }
  outcome.exit_code = exit_code_of(step.exit, outcome.exit_code);
  outcome.text = fill_in(step.line, words);
  return outcome;
}

}  // namespace train::actors
