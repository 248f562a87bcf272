// Two nodes whose network is cut: each a name space of its own with one link between them. Needs
// root.

#include <unistd.h>

#include <cstdlib>

#include "tests/integration/held_runs.hpp"

using namespace train::test;

namespace {

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// The name spaces and the link, gone at the end.
class LinkedNodes {
 public:
  LinkedNodes()
      : made_(shell("ip netns add " + name(0)) && shell("ip netns add " + name(1)) &&
              shell(fmt::format("ip link add link0 netns {} type veth peer name link0 netns {}",
                                name(0), name(1))) &&
              set_up(0) && set_up(1)) {}
  ~LinkedNodes() {
    shell("ip netns del " + name(0));
    shell("ip netns del " + name(1));
  }
  LinkedNodes(const LinkedNodes&) = delete;
  LinkedNodes& operator=(const LinkedNodes&) = delete;

  [[nodiscard]] bool made() const { return made_; }

  /// Cut at one of its ends, it swallows what is sent: nobody is told.
  [[nodiscard]] static bool set_link(bool works, int end = 0) {
    return shell(fmt::format("ip -n {} link set link0 {}", name(end), works ? "up" : "down"));
  }

  /// Held in its 41st step, of one lane of two blocks in each rank, until let_go().
  static std::unique_ptr<Process> start(const RunSite& site, int node, int job, const Words& keys) {
    return start_held(
        site, "1", 40 * 2 + 1,
        rank_keys(2, "full", joined(keys, {"parallel.nodes=2", "parallel.interface=link0"})),
        {"SLURM_STEP_NODELIST=n[0-1]", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0",
         fmt::format("SLURM_JOB_ID={}", job), fmt::format("SLURM_NODEID={}", node), "ip", "netns",
         "exec", name(node)});
  }

 private:
  static std::string name(int node) {
    return fmt::format("actortrain_test_{}_{}", ::getpid(), node);
  }
  static bool set_up(int node) {
    return shell(fmt::format("ip -n {} address add 10.212.0.{}/24 dev link0", name(node),
                             node + 1)) &&
           shell(fmt::format("ip -n {} link set lo up", name(node))) &&
           shell(fmt::format("ip -n {} link set link0 up", name(node)));
  }

  bool made_;
};

}  // namespace

namespace {

const Words kKeys = {"run.digest_interval_steps=1", "batch.lanes=2",
                     "eval.interval_steps=0",       "checkpoint.interval_steps=10",
                     "checkpoint.local_dir=none",   "run.steps=1000"};

void skip(const char* test) {
  WARN("skipped: " << test << ": cannot make network name spaces (needs root and iproute2)");
}

}  // namespace

TEST_CASE("cut link: when it works again the run goes on in the same job, to the same bits",
          "[integration][nodes][recovery][P1][P4]") {
  const LinkedNodes nodes;
  if (!nodes.made()) {
    return skip("cut link, mended");
  }
  const RunSite site;
  const std::unique_ptr<Process> cut[] = {LinkedNodes::start(site, 0, 40, kKeys),
                                          LinkedNodes::start(site, 1, 40, kKeys)};
  wait_for_output(*cut[0], "checkpoint ");
  REQUIRE(LinkedNodes::set_link(false));
  let_go(site);
  const auto since = std::chrono::steady_clock::now();
  REQUIRE(cut[0]->until([&] { return has(cut[0]->err(), "rank_lost "); }));
  fmt::print("cut link: noticed after {} ms\n", elapsed_ms(since));
  // The head has ended its rank, and the other node, which nobody could tell, does so by itself.
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  REQUIRE(LinkedNodes::set_link(true));
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait(std::chrono::seconds(120));
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.err, "respawned generation=1") == (node == 0));
  }
  site.train(joined(kKeys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("cut link: a head without network ends, and the next start goes on to the same bits",
          "[integration][nodes][failure][P1][P4]") {
  const LinkedNodes nodes;
  if (!nodes.made()) {
    return skip("cut link");
  }
  const RunSite site;
  const Words keys = joined(kKeys, {"recovery.node_wait_s=2"});
  const std::unique_ptr<Process> cut[] = {LinkedNodes::start(site, 0, 40, keys),
                                          LinkedNodes::start(site, 1, 40, keys)};
  wait_for_output(*cut[0], "checkpoint ");
  REQUIRE(LinkedNodes::set_link(false));
  let_go(site);
  const auto since = std::chrono::steady_clock::now();
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait(std::chrono::seconds(120));
    fmt::print("cut link: node {} ended after {} ms\n", node, elapsed_ms(since));
    INFO(ended.err);
    CHECK(ended.exit_code == 75);
    CHECK(has(ended.err, node == 0 ? "error node 1 has not come back within 2 s"
                                   : "node 1: the head has ended with exit code 75"));
  }
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  REQUIRE(LinkedNodes::set_link(true));
  const auto head = LinkedNodes::start(site, 0, 41, keys);
  const auto other = LinkedNodes::start(site, 1, 41, keys);
  let_go(site);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "resumed step="));
  CHECK(other->wait().exit_code == 0);
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("cut link: a node that stays away is gone on without, to the same bits",
          "[integration][nodes][failure][P1][P4]") {
  const LinkedNodes nodes;
  if (!nodes.made()) {
    return skip("cut link, a node without network");
  }
  const RunSite site;
  const Words keys = joined(kKeys, {"recovery.node_wait_s=2"});
  const std::unique_ptr<Process> cut[] = {LinkedNodes::start(site, 0, 40, keys),
                                          LinkedNodes::start(site, 1, 40, keys)};
  wait_for_output(*cut[0], "checkpoint ");
  REQUIRE(LinkedNodes::set_link(false, 1));
  let_go(site);
  const auto since = std::chrono::steady_clock::now();
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait(std::chrono::seconds(120));
    fmt::print("cut link: node {} ended after {} ms\n", node, elapsed_ms(since));
    INFO(ended.err);
    if (node == 0) {
      CHECK(ended.exit_code == 0);
      CHECK(has(ended.err, "nodes_lost node 1 has not come back within 2 s"));
    } else {  // it sees the run's end, if that comes before its patience is over
      const bool in_time = has(ended.err, "node 1: the head has ended with exit code 0");
      CHECK(in_time != has(ended.err, "error node 1: the head is gone, and has not come back"));
      CHECK(ended.exit_code == (in_time ? 0 : 75));
    }
  }
  CHECK(workers_of(site.path()).empty());
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}
