// A rank that is lost on one of several nodes ends a generation of ranks on all of them, not the
// job. Real processes, real signals.

#include <random>

#include "tests/integration/two_nodes.hpp"

using namespace train::test;

TEST_CASE("nodes: a job outlives kill -9 of workers of any node, and ends with the same bits",
          "[integration][nodes][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "gradient", "optimizer");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  TwoNodes run({"recovery.max_respawns=1000", "recovery.snapshot_interval_steps=4"}, strategy);
  const auto wanted = static_cast<std::size_t>(5 * soak());
  std::size_t kills = 0;
  std::int64_t slowest_ms = 0;
  while (kills < wanted && run.head().running()) {
    if (random() % 4 != 0) {  // else: anywhere in the start of a generation
      run.makes_progress();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    if (!run.signal_worker(static_cast<int>(random() % 4), SIGKILL)) {
      continue;  // between two generations, or at the end
    }
    const auto killed = std::chrono::steady_clock::now();
    if (run.loses_rank(++kills)) {
      slowest_ms = std::max(slowest_ms, elapsed_ms(killed));
    }
  }
  fmt::print("nodes: seed {}, {}, {} kills, noticed within {} ms\n", seed, strategy, kills,
             slowest_ms);
  run.check_good_end();
  const std::string log = run.head().err();
  const std::size_t from_memory = count_of(log, " from memory");
  fmt::print("nodes: {} starts from memory\n", from_memory);
  CHECK(kills > 1);
  CHECK(from_memory > 0);
  // The last one may have hit a worker that had done its work.
  CHECK(count_of(log, "respawned generation=") + 1 >= kills);
}

TEST_CASE("nodes: a worker of another node that falls silent is lost, and the run goes on",
          "[integration][nodes][recovery][P1][P4]") {
  TwoNodes run({});
  wait_for_output(run.head(), "step 1/");
  REQUIRE(run.signal_worker(3, SIGSTOP));
  const auto stopped = std::chrono::steady_clock::now();
  REQUIRE(run.loses_rank(1));
  fmt::print("nodes: a silent worker noticed after {} ms\n", elapsed_ms(stopped));
  run.check_good_end();
}

TEST_CASE("nodes: where ranks are lost without progress the run ends on every node",
          "[integration][nodes][recovery][failure]") {
  TwoNodes run({"recovery.max_respawns=0", "checkpoint.interval_steps=0"});
  wait_for_output(run.head(), "step 1/");
  REQUIRE(run.signal_worker(2, SIGKILL));
  const Ended ended = run.head().wait();
  const Ended other = run.other().wait();
  INFO(ended.err);
  INFO(other.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.err, "error rank 2 failed: its process ended: killed by SIGKILL"));
  CHECK(other.exit_code != 0);
  CHECK(workers_of(run.site().path()).empty());
}

TEST_CASE("nodes: with recovery.rank_loss = stop a lost rank ends the run on every node",
          "[integration][nodes][recovery][failure]") {
  TwoNodes run({"recovery.rank_loss=stop"});
  wait_for_output(run.head(), "step 1/");
  REQUIRE(run.signal_worker(3, SIGKILL));
  const Ended ended = run.head().wait();
  const Ended other = run.other().wait();
  INFO(ended.err);
  INFO(other.err);
  CHECK(ended.exit_code == 1);
  CHECK(other.exit_code == 1);
  CHECK(workers_of(run.site().path()).empty());
}
