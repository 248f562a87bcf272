// A rank that is lost on one of several nodes ends a generation of ranks on all of them, not the
// job. Real processes, real signals.

#include <random>

#include "tests/integration/killed_runs.hpp"
#include "tests/integration/node_runs.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kSteps = 300;

const Words kShape = {fmt::format("run.steps={}", kSteps),
                      "run.digest_interval_steps=1",
                      "batch.micro_batch=1",
                      "batch.lanes=4",
                      "eval.interval_steps=0",
                      "checkpoint.interval_steps=25",
                      "checkpoint.keep_last=1",
                      "checkpoint.local_dir=none"};

const Words& unbroken_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(kShape);
    return results_of(site.run());
  }();
  return results;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// A run of four ranks on two nodes, and what must be true at its end.
class TwoNodes {
 public:
  explicit TwoNodes(const Words& more, const std::string& strategy = "hybrid")
      : keys_(joined(kShape, more)),
        other_(start_node(site_, 1, 50, keys_, strategy)),
        head_(start_node(site_, 0, 50, keys_, strategy)) {}

  [[nodiscard]] Process& head() { return *head_; }
  [[nodiscard]] Process& other() { return *other_; }
  [[nodiscard]] const RunSite& site() const { return site_; }

  /// Sends `signal` to a worker that runs; false: it does not.
  [[nodiscard]] bool signal_worker(int rank, int signal) const {
    const auto workers = workers_of(site_.path());
    const auto victim = workers.find(rank);
    return victim != workers.end() && ::kill(victim->second, signal) == 0;
  }
  /// Waits until the run has come to a step that it has not shown before.
  bool makes_progress() {
    const std::size_t said = count_of(head_->out(), "step ");
    return head_->until([&] { return count_of(head_->out(), "step ") > said + 1; });
  }
  bool loses_rank(std::size_t times) {
    return head_->until([&] { return count_of(head_->err(), "rank_lost ") >= times; });
  }
  void check_good_end() {
    const Ended ended = head_->wait(std::chrono::seconds(120));
    const Ended other_ended = other_->wait(std::chrono::seconds(60));
    INFO("head: " << ended.err);
    INFO("other: " << other_ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(other_ended.exit_code == 0);
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
    CHECK(results_of(site_.run()) == unbroken_results());
  }

 private:
  RunSite site_;
  Words keys_;
  std::unique_ptr<Process> other_, head_;
};

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of workers of any node, and ends with the same bits",
          "[integration][nodes][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "gradient");
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
  CHECK((from_memory > 0) == (std::string(strategy) != "gradient"));
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
