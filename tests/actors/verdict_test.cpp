#include "actors/cluster/recovery/verdict.hpp"

#include <catch2/catch.hpp>
#include <csignal>

#include "base/exit_codes.hpp"
#include "tests/support/node_plan.hpp"

namespace train::actors {
namespace {

using Heard = FailureVerdict::Heard;

RankFailed failed(std::int32_t rank, bool consequence, bool lost = false) {
  return {.rank = rank, .text = "x", .consequence = consequence, .lost = lost};
}

RunFinished ended(GenerationEnd end) { return {7, kExitFailure, "rank 0 failed: y", end}; }

TEST_CASE("verdict: the cause is the first failure that is no consequence",
          "[actors][verdict][P4]") {
  FailureVerdict verdict;
  CHECK_FALSE(verdict.pending());
  CHECK(verdict.hear(failed(1, true)) == Heard::consequence);
  CHECK(verdict.hear(failed(2, true)) == Heard::nothing_new);
  CHECK(verdict.pending());
  CHECK_FALSE(verdict.cause());
  SECTION("heard of in time") {
    CHECK(verdict.hear(failed(3, false)) == Heard::cause);
    CHECK(verdict.hear(failed(0, false)) == Heard::nothing_new);
    CHECK_FALSE(verdict.conclude());
    CHECK(verdict.cause()->rank == 3);
  }
  SECTION("or, where nobody tells it, the first consequence") {
    CHECK(verdict.conclude());
    CHECK(verdict.cause()->rank == 1);
    CHECK(verdict.hear(failed(3, false)) == Heard::nothing_new);
  }
}

TEST_CASE("verdict: a lost rank or connection ends the generation, an error of its own the run",
          "[actors][verdict][P4]") {
  const RunFinished error = ended_by(failed(1, false), 7);
  CHECK(error.step == 7);
  CHECK(error.text == "rank 1 failed: x");
  CHECK(error.end == GenerationEnd::run_over);
  CHECK(ended_by(failed(1, false, true), 7).end == GenerationEnd::rank_lost);
  CHECK(ended_by(failed(1, true), 7).end == GenerationEnd::rank_lost);
}

TEST_CASE("verdict: what the kernel says of a worker's end stands before what others say",
          "[actors][verdict][P4]") {
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
          "[actors][verdict][P4]") {
  const test::TempDirectory data;
  RunPlan plan = test::plan_of_nodes(data.path(), 1, 2);
  CHECK(next_after(ended(GenerationEnd::rank_lost), plan, 0) == Next::next_generation);
  CHECK(next_after(ended(GenerationEnd::nodes_returned), plan, 0) == Next::next_generation);
  CHECK(next_after(ended(GenerationEnd::run_over), plan, SIGTERM) == Next::run_over);
  CHECK(next_after(ended(GenerationEnd::rank_lost), plan, SIGTERM) == Next::stopped_by_signal);
  plan.config.recovery.rank_loss = "stop";
  CHECK(next_after(ended(GenerationEnd::rank_lost), plan, 0) == Next::run_over);
}

TEST_CASE("verdict: the launcher of another node ends as the head says, or waits for it",
          "[actors][verdict][P4]") {
  const test::TempDirectory data;
  RunPlan plan = test::plan_of_nodes(data.path(), 2, 2);
  const auto end = [&plan](bool in_order, std::optional<GenerationOver> over, bool head_lost) {
    return node_end(1, in_order, over, head_lost, plan);
  };
  CHECK(end(true, GenerationOver{.exit_code = 75}, false).exit_code == kExitFinished);
  CHECK(end(false, GenerationOver{.exit_code = 75}, false).exit_code == 75);
  CHECK(end(false, GenerationOver{.again = true}, false).again);
  const NodeEnd late = end(false, GenerationOver{.without = true}, false);
  CHECK(late.exit_code == kExitFinished);
  CHECK(late.warning.starts_with("node 1: comes too late"));
  CHECK(end(false, std::nullopt, true).again);
  plan.config.recovery.rank_loss = "stop";
  const NodeEnd gone = end(false, std::nullopt, true);
  CHECK_FALSE(gone.again);
  CHECK(gone.exit_code == kExitFailure);
  CHECK(gone.error == "node 1: the head is gone");
}

}  // namespace
}  // namespace train::actors
