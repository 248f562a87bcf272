// A rank that is lost on one of several nodes ends a generation of ranks on all of them, not the
// job. Real processes, real signals.

#include <random>

#include "tests/integration/sites/two_nodes.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

/// The launcher of node 1 ends as the head tells it to, and has nothing to say of it.
void check_ends_as_told(const Ended& other, int told) {
  INFO(other.err);
  check_ends_as(end_of(run::NodeState::running, run::NodeEvent::end, {}, {}, told), other,
                "node 1");
}

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of workers of any node, and ends with the same bits",
          "[integration][.full][soak][nodes][recovery][P1][P4]") {
  const std::string strategy = GENERATE("full", "none", "hybrid", "gradient", "optimizer");
  INFO(strategy);
  std::mt19937 random(Catch::rngSeed());
  TwoNodes run({"recovery.max_respawns=1000", "recovery.snapshot_interval_steps=4"}, strategy);
  const fs::path directory = run.site().run();
  REQUIRE(run.comes_to(6));  // what is lost now comes back from memory
  const auto wanted = static_cast<std::size_t>(2 * soak());
  for (std::size_t kills = 1; kills <= wanted; ++kills) {
    // Until then ranks of the generation before may be about to end on the other node.
    REQUIRE(event_comes(directory, run.head(), "respawned", kills - 1));
    if (kills > 1 && random() % 4 != 0) {  // else: in the start of a generation
      REQUIRE(run.makes_progress(1 + random() % 6));
    }
    const int rank = static_cast<int>(random() % 4);
    REQUIRE(run.head().until([&] { return run.signal_worker(rank, SIGKILL); }));
    REQUIRE(run.loses_rank(kills));
  }
  run.check_good_end();
  CHECK(count_events(directory, "respawned") == wanted);
  CHECK(has(run.head().err(), " from memory"));
}

TEST_CASE("nodes: a worker of another node that falls silent is lost, and the run goes on",
          "[integration][.full][nodes][recovery][P1][P4]") {
  TwoNodes run({}, "hybrid", false);
  REQUIRE(run.comes_to(1));
  REQUIRE(run.signal_worker(3, SIGSTOP));
  REQUIRE(run.loses_rank(1));
  run.check_good_end();
}

TEST_CASE("nodes: where ranks are lost without progress the run ends on every node",
          "[integration][.full][nodes][recovery][failure]") {
  TwoNodes run({"recovery.max_respawns=0", "checkpoint.interval_steps=0"});
  REQUIRE(run.comes_to(1));
  REQUIRE(run.signal_worker(2, SIGKILL));
  const Ended ended = run.head().wait();
  const Ended other = run.other().wait();
  INFO(ended.err);
  // Not 75: the job would be queued again.
  check_ends_as(end_of({.in = HeadState::restoring,
                        .events = {HeadEvent::placed},
                        .words = {.text = "rank * failed: *"}}),
                ended);
  // As its launcher says it, or, if that is late, as those say it who have lost it.
  CHECK((has(ended.err, "error rank 2 failed: ") || has(ended.err, "lost rank 2")));
  check_ends_as_told(other, 1);
  CHECK(comes_true([&] { return workers_of(run.site().path()).empty(); }));
}

TEST_CASE(
    "nodes: a resumed run that loses ranks before its next save ends, and is not queued again",
    "[integration][nodes][recovery][failure]") {
  const RunSite site;
  const Words keys = joined(kShape, {"recovery.max_respawns=0", "checkpoint.interval_steps=0"});
  const auto start = [&](int node, int job) { return start_node(site, node, job, keys, "full"); };
  {
    const auto other = start(1, 50);
    const auto head = start(0, 50);
    wait_for_step(site, *head, 1);
    head->send(SIGTERM);
    REQUIRE(head->wait().exit_code == 75);
    other->wait();
  }
  const std::int64_t done = last_step(site.run());
  const auto other = start(1, 51);
  const auto head = start(0, 51);
  wait_for_step(site, *head, done + 1);
  ::kill(started_workers(site, *head, 4).at(2), SIGKILL);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(has(ended.err, "resumed step="));
  check_ends_as(end_of({.in = HeadState::restoring,
                        .events = {HeadEvent::placed},
                        .words = {.text = "rank * failed: *"}}),
                ended);
  check_ends_as_told(other->wait(), 1);
}

TEST_CASE("nodes: with recovery.rank_loss = stop a lost rank ends the run on every node",
          "[integration][.full][nodes][recovery][failure]") {
  TwoNodes run({"recovery.rank_loss=stop"});
  REQUIRE(run.comes_to(1));
  REQUIRE(run.signal_worker(3, SIGKILL));
  const Ended ended = run.head().wait();
  const Ended other = run.other().wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::ending_loss,
                        .events = {HeadEvent::ranks_gone},
                        .words = {.text = "rank * failed: *"}}),
                ended);
  check_ends_as_told(other, 1);
  CHECK(comes_true([&] { return workers_of(run.site().path()).empty(); }));
}
