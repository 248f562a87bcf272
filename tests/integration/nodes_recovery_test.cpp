// A rank that is lost on one of several nodes ends a generation of ranks on all of them, not the
// job. Real processes, real signals.

#include <random>

#include "tests/integration/table_end.hpp"
#include "tests/integration/two_nodes.hpp"

using namespace train::test;

namespace {

/// The launcher of node 1 ends as the head tells it to, and has nothing to say of it.
void check_ends_as_told(const Ended& other, int told) {
  INFO(other.err);
  check_ends_as(end_of(actors::NodeState::running, actors::NodeEvent::end, {}, {}, told), other,
                "node 1");
}

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of workers of any node, and ends with the same bits",
          "[integration][.full][nodes][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "gradient", "optimizer");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const auto wanted = static_cast<std::size_t>(5 * soak());
  std::size_t kills = 0;
  std::size_t from_memory = 0;
  std::int64_t slowest_ms = 0;
  while (kills < wanted || from_memory == 0) {  // run after run, where one is not long enough
    TwoNodes run({"recovery.max_respawns=1000", "recovery.snapshot_interval_steps=4"}, strategy);
    std::size_t lost = 0;
    while ((kills < wanted || lost == 0) && run.head().running()) {
      if (lost == 0) {
        run.comes_to(6);               // what is lost now comes back from memory
      } else if (random() % 4 != 0) {  // else: anywhere in the start of a generation
        run.makes_progress();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
      if (!run.signal_worker(static_cast<int>(random() % 4), SIGKILL)) {
        continue;  // between two generations, or at the end
      }
      const auto killed = std::chrono::steady_clock::now();
      ++kills;
      if (run.loses_rank(++lost)) {
        slowest_ms = std::max(slowest_ms, elapsed_ms(killed));
      }
    }
    run.check_good_end();
    const std::string log = run.head().err();
    from_memory += count_of(log, " from memory");
    // The last one may have hit a worker that had done its work.
    CHECK(count_of(log, "respawned generation=") + 1 >= lost);
  }
  fmt::print("nodes: seed {}, {}, {} kills, noticed within {} ms, {} starts from memory\n", seed,
             strategy, kills, slowest_ms, from_memory);
}

TEST_CASE("nodes: a worker of another node that falls silent is lost, and the run goes on",
          "[integration][.full][nodes][recovery][P1][P4]") {
  TwoNodes run({kEndless});
  wait_for_output(run.head(), "step 1/");
  REQUIRE(run.signal_worker(3, SIGSTOP));
  const auto silent = std::chrono::steady_clock::now();
  REQUIRE(run.loses_rank(1));
  fmt::print("nodes: a silent worker noticed after {} ms\n", elapsed_ms(silent));
  run.check_good_end();
}

TEST_CASE("nodes: where ranks are lost without progress the run ends on every node",
          "[integration][.full][nodes][recovery][failure]") {
  TwoNodes run({kEndless, "recovery.max_respawns=0", "checkpoint.interval_steps=0"});
  wait_for_output(run.head(), "step 1/");
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
  const Words keys =
      joined(kShape, {kEndless, "recovery.max_respawns=0", "checkpoint.interval_steps=0"});
  const auto start = [&](int node, int job) { return start_node(site, node, job, keys, "full"); };
  {
    const auto other = start(1, 50);
    const auto head = start(0, 50);
    wait_for_output(*head, "step 1/");
    head->send(SIGTERM);
    REQUIRE(head->wait().exit_code == 75);
    other->wait();
  }
  const auto other = start(1, 51);
  const auto head = start(0, 51);
  wait_for_output(*head, "step ");
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
  TwoNodes run({kEndless, "recovery.rank_loss=stop"});
  wait_for_output(run.head(), "step 1/");
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
