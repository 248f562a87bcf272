// A node that is lost and does not come back: the others go on without it, in the same job and to
// the same bits. Real processes, real signals.

#include "tests/integration/two_nodes.hpp"

using namespace train::test;

namespace {

const Words kFromMemory = {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=20",
                           "checkpoint.interval_steps=1000"};

/// The others of three nodes have to come back in time, also on a busy machine.
Words with_time(Words keys, int seconds = 3) {
  keys.push_back(fmt::format("recovery.node_wait_s={}", seconds));
  return keys;
}

/// A run whose nodes are lost one after the other.
class ShrinkingRun {
 public:
  ShrinkingRun(NodeShape shape, std::string strategy, const Words& keys)
      : shape_(shape), strategy_(std::move(strategy)), keys_(joined(kShape, keys)) {
    for (int node = 0; node < shape.nodes; ++node) {
      launchers_.push_back(nullptr);
      start(node);
    }
  }

  [[nodiscard]] Process& head() { return *launchers_.front(); }
  [[nodiscard]] Process& launcher(int node) { return *launchers_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const RunSite& site() const { return site_; }

  void start(int node) {
    launchers_[static_cast<std::size_t>(node)] =
        start_node(site_, node, 60, keys_, strategy_, shape_);
  }
  /// The node is gone at once, with launcher, ranks and memory.
  void lose(int node) {
    launcher(node).send(SIGKILL);
    launcher(node).wait();
    launchers_[static_cast<std::size_t>(node)].reset();
  }
  /// Waits until the run has come so far.
  void comes_to(int step) {
    const bool there = head().until([&] { return step_shown() >= step; });
    INFO(head().err());
    REQUIRE(there);
    REQUIRE(head().running());
  }
  void says(const std::string& text, std::size_t times = 1) {
    const bool said = head().until([&] { return count_of(head().err(), text) >= times; });
    INFO(head().err());
    INFO("wanted: " << text);
    REQUIRE(said);
  }
  void check_good_end() {
    const Ended ended = head().wait(std::chrono::seconds(120));
    INFO("head: " << ended.err);
    CHECK(ended.exit_code == 0);
    for (std::size_t node = 1; node < launchers_.size(); ++node) {
      if (launchers_[node]) {
        const Ended other = launchers_[node]->wait(std::chrono::seconds(60));
        INFO("node " << node << ": " << other.err);
        CHECK(other.exit_code == 0);
      }
    }
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
    CHECK(results_of(site_.run()) == unbroken_results());
  }

 private:
  [[nodiscard]] int step_shown() {
    const std::string out = head().out();
    const std::size_t last = out.rfind("step ");
    return last == std::string::npos ? 0 : std::atoi(out.c_str() + last + 5);
  }

  RunSite site_;
  NodeShape shape_;
  std::string strategy_;
  Words keys_;
  std::vector<std::unique_ptr<Process>> launchers_;
};

}  // namespace

TEST_CASE("fewer nodes: one of two does not come back, and the head goes on from both's memory",
          "[integration][nodes][fewer][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "optimizer", "gradient");
  const int ranks = GENERATE(2, 4);
  if (std::string(strategy) == "hybrid" && ranks == 2) {
    return;  // no group of two is left
  }
  CAPTURE(strategy, ranks);
  ShrinkingRun run({.nodes = 2, .ranks = ranks}, strategy, kFromMemory);
  run.comes_to(50);
  run.lose(1);
  run.says("nodes_lost node 1 has not come back within 1 s");
  run.check_good_end();
  const std::string log = run.head().err();
  CHECK(count_of(log, " from memory") == 1);
  CHECK(has(log, fmt::format("ranks={} nodes=1", ranks / 2)));
}

TEST_CASE("fewer nodes: two of three go on from memory, and then one",
          "[integration][nodes][fewer][recovery][P1][P4]") {
  const auto [strategy, first] = GENERATE(table<const char*, int>(
      {{"full", 1}, {"full", 2}, {"none", 2}, {"optimizer", 1}, {"gradient", 2}}));
  CAPTURE(strategy, first);
  ShrinkingRun run({.nodes = 3, .ranks = 3}, strategy, with_time(kFromMemory));
  run.comes_to(50);
  run.lose(first);
  run.says(fmt::format("nodes_lost node {} has not come back", first));
  run.comes_to(120);
  run.lose(3 - first);
  run.says(fmt::format("nodes_lost node {} has not come back", 3 - first));
  run.check_good_end();
  const std::string log = run.head().err();
  CHECK(count_of(log, " from memory") == 2);
  CHECK(has(log, "ranks=2 nodes=2"));
  CHECK(has(log, "ranks=1 nodes=1"));
}

TEST_CASE("fewer nodes: of those that are left one that is started anew has its place again",
          "[integration][nodes][fewer][recovery][P1][P4]") {
  ShrinkingRun run({.nodes = 3, .ranks = 3}, "full", with_time(kFromMemory, 5));
  run.comes_to(50);
  run.lose(1);
  run.says("nodes_lost node 1 has not come back");
  run.comes_to(120);
  run.lose(2);
  run.start(2);
  run.says("info respawned generation=", 2);
  run.check_good_end();
  const std::string log = run.head().err();
  CHECK(count_of(log, " from memory") == 2);
  CHECK(count_of(log, "ranks=2 nodes=2") == 2);
}

TEST_CASE("fewer nodes: what no node has in memory comes from the newest checkpoint",
          "[integration][nodes][fewer][recovery][P1][P3][P4]") {
  ShrinkingRun run({.nodes = 3, .ranks = 3}, "full",
                   {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=20"});
  run.comes_to(50);
  wait_for_output(run.head(), "checkpoint ");
  run.launcher(1).send(SIGKILL);  // with it goes what it had of itself, with its buddy the rest
  run.lose(2);
  run.lose(1);
  run.says("nodes_lost nodes 1, 2 have not come back");
  run.check_good_end();
  const std::string log = run.head().err();
  INFO(log);
  CHECK(has(log, "checkpoints/step-"));
}

TEST_CASE("fewer nodes: a node that comes too late is told so, and the run goes on",
          "[integration][nodes][fewer][recovery][P4]") {
  ShrinkingRun run({.nodes = 2, .ranks = 4}, "full", kFromMemory);
  run.comes_to(50);
  run.lose(1);
  run.says("info respawned generation=1");
  run.start(1);
  const Ended late = run.launcher(1).wait(std::chrono::seconds(60));
  INFO(late.err);
  CHECK(late.exit_code == 0);
  CHECK(has(late.err, "node 1: comes too late, the run goes on without it"));
  run.check_good_end();
}
