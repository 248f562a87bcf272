#include "run/recovery/verdict.hpp"

#include <catch2/catch.hpp>
#include <csignal>

#include "base/exit_codes.hpp"

namespace train::run {
namespace {

RankFailed failed(std::int32_t rank, bool consequence, bool lost = false) {
  return {.rank = rank, .text = "x", .consequence = consequence, .lost = lost};
}

RunFinished ended(GenerationEnd end) { return {7, kExitFailure, "rank 0 failed: y", end}; }

TEST_CASE("verdict: the cause is the first failure that is no consequence", "[run][verdict][P4]") {
  Verdict verdict(HeadState::training);
  CHECK(verdict.failed(failed(1, true), 2).has(HeadAction::wait_for_cause));
  CHECK_FALSE(verdict.failed(failed(2, true), 2).has(HeadAction::wait_for_cause));
  CHECK(verdict.state() == HeadState::doubt);
  CHECK_FALSE(verdict.over());
  SECTION("heard of in time") {
    CHECK(verdict.failed(failed(3, false), 2).has(HeadAction::end_ranks));
    CHECK_FALSE(verdict.failed(failed(0, false), 2).has(HeadAction::end_ranks));
    CHECK_FALSE(verdict.conclude().has(HeadAction::end_ranks));
    CHECK(verdict.outcome(7).text == "rank 3 failed: x");
  }
  SECTION("or, where nobody tells it, the first rank that cannot be reached") {
    verdict.failed(failed(3, true, true), 2);
    verdict.failed(failed(0, true, true), 2);
    verdict.failed(failed(2, true), 2);
    CHECK(verdict.conclude().has(HeadAction::end_ranks));
    CHECK(verdict.outcome(7).text == "rank 3 failed: x");
    CHECK(verdict.outcome(7).end == GenerationEnd::rank_lost);
  }
  SECTION("or the first consequence") {
    CHECK(verdict.conclude().has(HeadAction::end_ranks));
    CHECK_FALSE(verdict.failed(failed(3, false), 2).has(HeadAction::end_ranks));
    CHECK(verdict.outcome(7).text == "rank 1 failed: x");
  }
}

TEST_CASE("verdict: a lost rank or connection ends the generation, an error of its own the run",
          "[run][verdict][P4]") {
  const auto outcome = [](const RankFailed& failure) {
    Verdict verdict(HeadState::training);
    if (verdict.failed(failure, 2).has(HeadAction::wait_for_cause)) {
      verdict.conclude();
    }
    return verdict.outcome(7);
  };
  const RunFinished error = outcome(failed(1, false));
  CHECK(error.step == 7);
  CHECK(error.text == "rank 1 failed: x");
  CHECK(error.end == GenerationEnd::run_over);
  CHECK(outcome({.rank = 1, .text = "x", .exit_code = kExitUserError}).exit_code == kExitUserError);
  CHECK(outcome(failed(1, false, true)).end == GenerationEnd::rank_lost);
  CHECK(outcome(failed(1, true)).end == GenerationEnd::rank_lost);
  Verdict alone(HeadState::training);  // nobody else can be the cause
  CHECK(alone.failed(failed(0, true), 1).has(HeadAction::end_ranks));
  CHECK(alone.outcome(7).end == GenerationEnd::rank_lost);
}

TEST_CASE("verdict: of ranks that start one that is lost is started again, one that fails is not",
          "[run][verdict][P4]") {
  Verdict missed(HeadState::starting);
  missed.failed(failed(1, true, true), 2);
  missed.conclude();
  CHECK(missed.outcome(0).end == GenerationEnd::rank_lost);
  CHECK(missed.outcome(0).text == "x");  // it names its rank itself
  Verdict stranded(HeadState::starting);
  stranded.failed(failed(1, true), 2);
  stranded.failed(failed(2, true, true), 2);
  stranded.conclude();
  CHECK(stranded.outcome(0).end == GenerationEnd::run_over);
  Verdict stopped(HeadState::starting);
  CHECK_FALSE(stopped.signal(15, /*in_memory=*/true).has(HeadAction::end_ranks));
  CHECK(stopped.signal(15).has(HeadAction::end_ranks));
  CHECK(stopped.outcome(0).text == "stopped by signal 15 before the first step");
  CHECK(stopped.outcome(0).exit_code == kExitStopped);
}

TEST_CASE("verdict: a checkpoint that a rank calls damaged is verified, whether ranks may respawn",
          "[run][verdict][P3][P4]") {
  Verdict found(HeadState::starting);
  found.failed({.rank = 1, .text = "x", .consequence = true, .damaged = true}, 2);
  const RunFinished end = found.outcome(0);
  CHECK(end.end == GenerationEnd::damage_found);
  for (const HeadFacts facts : {HeadFacts(), HeadFacts{HeadFact::respawn}}) {
    const HeadStep step = Verdict(state_of(end.end)).hear(HeadEvent::ranks_gone, facts);
    CHECK(step.next == HeadState::meeting);
    CHECK(step.has(HeadAction::verify));
    CHECK(step.has(HeadAction::tell_again));
  }
  Verdict stopped(state_of(end.end));
  stopped.hear(HeadEvent::ranks_gone, {HeadFact::signalled}, {.signal = 15, .text = "x"});
  CHECK(stopped.outcome(0).exit_code == kExitStopped);
  Verdict trains(HeadState::training);  // nobody restores any more
  CHECK(trains.hear(HeadEvent::damage_found).next == HeadState::training);
}

TEST_CASE("verdict: what the kernel says of a worker's end stands before what others say",
          "[run][verdict][P4]") {
  FirstLoss loss;
  loss.hear({.rank = 3, .text = "exit code 1"});  // no signal
  CHECK(loss.cause_of(ended(GenerationEnd::rank_lost)).text == "rank 0 failed: y");
  loss.hear({.rank = 2, .text = "killed by SIGKILL", .killed = true, .unasked = true});
  loss.hear({.rank = 1, .text = "killed by SIGSEGV", .unasked = true});
  const RunFinished outcome = loss.cause_of(ended(GenerationEnd::nodes_returned));
  CHECK(outcome.text == "rank 2 failed: its process ended: killed by SIGKILL");
  CHECK(outcome.end == GenerationEnd::rank_lost);
  CHECK(loss.cause_of(ended(GenerationEnd::run_over)).text == "rank 0 failed: y");
  FirstLoss own_error;
  own_error.hear({.rank = 1, .text = "killed by SIGSEGV", .unasked = true});
  CHECK(own_error.cause_of(ended(GenerationEnd::rank_lost)).end == GenerationEnd::run_over);
}

TEST_CASE("verdict: the next generation follows a loss where ranks may be started again",
          "[run][verdict][P4]") {
  const auto after = [](GenerationEnd end, HeadFacts facts) {
    Verdict verdict(state_of(end));
    verdict.hear(HeadEvent::ranks_gone, facts, {.signal = SIGTERM, .text = "rank 0 failed: y"});
    return verdict;
  };
  CHECK(after(GenerationEnd::rank_lost, {HeadFact::respawn}).state() == HeadState::meeting);
  CHECK(after(GenerationEnd::nodes_returned, {HeadFact::respawn}).state() == HeadState::meeting);
  CHECK(after(GenerationEnd::run_over, {HeadFact::respawn}).state() == HeadState::over);
  const Verdict stopped = after(GenerationEnd::rank_lost, {HeadFact::respawn, HeadFact::signalled});
  REQUIRE(stopped.over());
  CHECK(stopped.outcome(7).exit_code == kExitStopped);
  CHECK(stopped.outcome(7).text.starts_with("stopped by signal 15 as rank 0 failed: y; "));
  const Verdict lost = after(GenerationEnd::rank_lost, {});
  REQUIRE(lost.over());
  CHECK(lost.outcome(7).text == "rank 0 failed: y");
  CHECK(lost.outcome(7).exit_code == kExitFailure);
}

TEST_CASE("verdict: a program that is over says how, unless a failure came before",
          "[run][verdict][P4]") {
  Verdict finished(HeadState::training);
  finished.program_over({kExitFinished, "finished at step 7"});
  CHECK(finished.outcome(7).text == "finished at step 7");
  CHECK(finished.outcome(7).exit_code == kExitFinished);
  Verdict failed_before(HeadState::training);
  failed_before.failed(failed(2, false), 2);
  failed_before.program_over({kExitFinished, "finished at step 7"});
  CHECK(failed_before.outcome(7).text == "rank 2 failed: x");
  CHECK(failed_before.outcome(7).exit_code == kExitFailure);
}

TEST_CASE("verdict: a launcher, a signal and nodes that are back end ranks, each with its line",
          "[run][verdict][P4]") {
  Verdict launcher(HeadState::training);
  CHECK(launcher.launcher_lost(2).has(HeadAction::end_ranks));
  CHECK(launcher.outcome(7).end == GenerationEnd::rank_lost);
  CHECK(launcher.outcome(7).text == "the launcher of node 2 has ended or cannot be reached");
  Verdict early(HeadState::starting);
  CHECK_FALSE(early.signal(SIGTERM, /*in_memory=*/true).has(HeadAction::end_ranks));
  CHECK(early.ready(/*signalled=*/true).has(HeadAction::save));
  CHECK(early.state() == HeadState::training);
  Verdict stopped(HeadState::starting);
  CHECK(stopped.signal(SIGTERM).has(HeadAction::end_ranks));
  CHECK(stopped.outcome(0).exit_code == kExitStopped);
  CHECK(stopped.outcome(0).text == "stopped by signal 15 before the first step");
  Verdict back(HeadState::training);
  CHECK_FALSE(back.nodes_wait(/*steps_left=*/false).has(HeadAction::end_ranks));
  CHECK(back.nodes_wait(/*steps_left=*/true).has(HeadAction::end_ranks));
  CHECK(back.outcome(7).end == GenerationEnd::nodes_returned);
  Verdict phase(HeadState::training);
  CHECK(phase.program_over({kExitStopped, "phase 1", true}).has(HeadAction::end_ranks));
  CHECK(phase.outcome(7).end == GenerationEnd::phase_over);
  CHECK_FALSE(may_wait(/*welcome=*/false));
  CHECK(may_wait(/*welcome=*/true));
}

TEST_CASE("verdict: where the head fails the run is over, with its text", "[run][verdict][P4]") {
  const RunFinished end = head_failure(7, "conductor: bad_alloc");
  CHECK(end.step == 7);
  CHECK(end.exit_code == kExitFailure);
  CHECK(end.text == "conductor: bad_alloc");
  CHECK(end.end == GenerationEnd::run_over);
}

}  // namespace
}  // namespace train::run
