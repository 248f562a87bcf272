// Two nodes on one machine: separate network and process namespaces, joined by a link of 1 Gbit/s.
// Without process namespaces ranks would read each other's memory and never use the link.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "bench/ranks/ranks_rows.hpp"

namespace train::bench {
namespace {

bool shell(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

/// Namespaces, removed at the end.
class TwoNodes {
 public:
  TwoNodes() {
    made_ = shell("ip netns add " + name(0)) && shell("ip netns add " + name(1)) &&
            shell(fmt::format("ip link add rank0 netns {} type veth peer name rank0 netns {}",
                              name(0), name(1))) &&
            set_up(0) && set_up(1);
  }
  ~TwoNodes() {
    shell("ip netns del " + name(0));
    shell("ip netns del " + name(1));
  }
  TwoNodes(const TwoNodes&) = delete;
  TwoNodes& operator=(const TwoNodes&) = delete;

  [[nodiscard]] bool made() const { return made_; }

  /// As started by a Slurm step of two nodes.
  [[nodiscard]] std::vector<std::string> prefixes() const {
    std::vector<std::string> prefixes;
    for (const int node : {0, 1}) {
      prefixes.push_back(fmt::format(
          "ip netns exec {} env SLURM_JOB_ID={} SLURM_STEP_ID={} SLURM_STEP_NUM_TASKS=2 "
          "SLURM_STEP_NUM_NODES=2 SLURM_NODEID={} "
          "unshare --pid --fork --kill-child --mount-proc",
          name(node), ::getpid(), step_, node));
    }
    ++step_;
    return prefixes;
  }

 private:
  static std::string name(int node) { return fmt::format("ranks_bench_{}_{}", ::getpid(), node); }
  static bool set_up(int node) {
    const std::string in = fmt::format("ip netns exec {} ", name(node));
    return shell(fmt::format("{}ip address add 10.211.0.{}/24 dev rank0", in, node + 1)) &&
           shell(in + "ip link set lo up") && shell(in + "ip link set rank0 up") &&
           shell(in + "tc qdisc add dev rank0 root tbf rate 1gbit burst 128kb latency 50ms");
  }

  bool made_ = false;
  mutable int step_ = 0;
};

}  // namespace

void gating_row(const Workplace& place) {
  const TwoNodes nodes;
  if (!nodes.made()) {
    print_result("gating", "skipped: no network name spaces here (root, ip and tc are needed)");
    return;
  }
  // 11 M weights and short lanes: a model limited by such a link.
  const Words shape = {"model.layers=6",      "model.heads=6",
                       "model.head_dim=64",   "batch.lanes=8",
                       "batch.micro_batch=1", "data.sequence_length=128",
                       "parallel.ranks=2",    "parallel.nodes=2",
                       "run.steps=8",         "parallel.interface=\"rank0\""};
  for (const char* strategy : {"none", "full"}) {
    Values ratios;
    Values every_ms;
    Values last_ms;
    const bool judged = std::string(strategy) == "none";
    for (int i = 0; i < (judged ? 3 : 1); ++i) {
      const auto run = [&](const char* sync) {
        return run_program(
            place, {.keys = joined(shape, {fmt::format("parallel.strategy=\"{}\"", strategy),
                                           fmt::format("parallel.sync=\"{}\"", sync)}),
                    .node_prefixes = nodes.prefixes()});
      };
      const double every = run("every_lane").step_seconds;
      const double last = run("last_lane").step_seconds;
      every_ms.add(every * 1e3);
      last_ms.add(last * 1e3);
      ratios.add(every / last);
    }
    print_result(fmt::format("{}: a step with every_lane, with last_lane, ms", strategy),
                 fmt::format("{}, {}", every_ms.text(0), last_ms.text(0)));
    if (judged) {
      print_at_least("none: last_lane / every_lane, tokens/s", ratios, 1.6);
    } else {
      print_result("full: last_lane / every_lane, tokens/s (no target)", ratios.text(3));
    }
  }
}

}  // namespace train::bench
