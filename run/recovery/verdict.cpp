#include "run/recovery/verdict.hpp"

#include <utility>

#include "base/check.hpp"

namespace train::run {

HeadStep Verdict::hear(HeadEvent event, HeadFacts facts, LineWords words, std::int32_t told) {
  const HeadStep step = decide(state_, event, facts);
  const bool doubted = state_ == HeadState::start_doubt || state_ == HeadState::doubt;
  const bool doubts = step.has(HeadAction::wait_for_cause);
  if (doubts) {
    doubt_lost_ = event == HeadEvent::rank_missed;
    hearsay_ = event == HeadEvent::rank_stranded;
  }
  const bool found = state_ == HeadState::doubt && hearsay_ && event == HeadEvent::rank_missed;
  hearsay_ = hearsay_ && !found;
  const bool ends = step.exit != Exit::none && !(doubted && event == HeadEvent::cause_time_over);
  if (doubts || found || ends) {
    words_ = std::move(words);
    told_ = told;
  }
  if (step.exit != Exit::none) {
    last_ = step;
  }
  state_ = step.next;
  return step;
}

HeadStep Verdict::failed(const RankFailed& failure, std::size_t ranks) {
  return hear(event_of(failure), HeadFacts().set(HeadFact::alone, ranks == 1),
              {.rank = failure.rank, .text = failure.text}, failure.exit_code);
}

HeadStep Verdict::launcher_lost(std::int64_t node) {
  return hear(HeadEvent::launcher_lost, {}, {.node = node});
}

HeadStep Verdict::ready(bool signalled) {
  return hear(HeadEvent::ranks_ready, HeadFacts().set(HeadFact::signalled, signalled));
}

HeadStep Verdict::signal(int signal, bool in_memory) {
  return hear(HeadEvent::signal, HeadFacts().set(HeadFact::in_memory, in_memory),
              {.signal = signal});
}

HeadStep Verdict::nodes_wait(bool steps_left) {
  return hear(HeadEvent::nodes_wait, HeadFacts().set(HeadFact::steps_left, steps_left));
}

HeadStep Verdict::program_over(const ProgramEnd& end) {
  return hear(end.phase_over ? HeadEvent::phase_over : HeadEvent::program_over, {},
              {.text = end.text}, end.exit_code);
}

HeadStep Verdict::head_failed(std::string text) {
  return hear(HeadEvent::head_failed, {}, {.text = std::move(text)});
}

HeadStep Verdict::conclude() {
  return hear(HeadEvent::cause_time_over, HeadFacts().set(HeadFact::lost, doubt_lost_));
}

RunFinished Verdict::outcome(std::int64_t step) const {
  TRAIN_CHECK(over(), "the run goes on, in state {}", name_of(state_));
  return {step, exit_code_of(last_.exit, told_), fill_in(last_.line, words_), end_of(state_)};
}

bool may_wait(bool welcome) {
  return decide(HeadState::training, HeadEvent::launcher_came,
                HeadFacts().set(HeadFact::welcome, welcome))
      .has(HeadAction::keep_launcher);
}

RunFinished head_failure(std::int64_t step, std::string text) {
  Verdict verdict(HeadState::training);
  verdict.head_failed(std::move(text));
  return verdict.outcome(step);
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

}  // namespace train::run
