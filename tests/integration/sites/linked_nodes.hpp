#pragma once

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/integration/sites/held_runs.hpp"

namespace train::test {

/// Nodes with an address each on one network: name spaces of the kernel, joined by a bridge in one
/// more. Their ranks have process numbers of their own, so that, as on other machines, none reads
/// another's memory: all that they tell each other goes over the network. Needs root; gone at the
/// end.
class LinkedNodes {
 public:
  explicit LinkedNodes(int nodes) : nodes_(nodes) {
    made_ = shell("ip netns add " + bridge()) &&
            shell(fmt::format("ip -n {} link add bridge0 type bridge", bridge())) &&
            shell(fmt::format("ip -n {} link set bridge0 up", bridge()));
    for (int node = 0; made_ && node < nodes_; ++node) {
      made_ = set_up(node);
    }
  }
  ~LinkedNodes() {
    for (int node = 0; node < nodes_; ++node) {
      shell("ip netns del " + name(node));
    }
    shell("ip netns del " + bridge());
  }
  LinkedNodes(const LinkedNodes&) = delete;
  LinkedNodes& operator=(const LinkedNodes&) = delete;

  [[nodiscard]] bool made() const { return made_; }

  /// Cut at a node, its link swallows what is sent: nobody is told.
  [[nodiscard]] static bool set_link(bool works, int node = 0) {
    return shell(fmt::format("ip -n {} link set link0 {}", name(node), works ? "up" : "down"));
  }
  /// The two do not reach each other any more, and are told so when they connect anew; all others
  /// do.
  [[nodiscard]] static bool part(int one, int other) {
    return shell(fmt::format("ip -n {} route add prohibit {}", name(one), address(other))) &&
           shell(fmt::format("ip -n {} route add prohibit {}", name(other), address(one)));
  }
  [[nodiscard]] static bool join(int one, int other) {
    return shell(fmt::format("ip -n {} route del prohibit {}", name(one), address(other))) &&
           shell(fmt::format("ip -n {} route del prohibit {}", name(other), address(one)));
  }

  /// The launcher of a node with one rank of strategy full. Rank 1 is held in its 41st step, of one
  /// lane of two blocks, until let_go().
  [[nodiscard]] std::unique_ptr<Process> start(const RunSite& site, int node, int job,
                                               const Words& keys) const {
    return start_held(
        site, "1", 40 * 2 + 1,
        rank_keys(
            nodes_, "full",
            joined(keys, {fmt::format("parallel.nodes={}", nodes_), "parallel.interface=link0"})),
        {fmt::format("SLURM_STEP_NUM_NODES={}", nodes_),
         fmt::format("SLURM_STEP_NUM_TASKS={}", nodes_), "SLURM_STEP_ID=0",
         fmt::format("SLURM_JOB_ID={}", job), fmt::format("SLURM_NODEID={}", node), "ip", "netns",
         "exec", name(node), "unshare", "--pid", "--fork", "--kill-child"},
        false);
  }

 private:
  static bool shell(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static std::string name(int node) {
    return fmt::format("actortrain_test_{}_{}", ::getpid(), node);
  }
  static std::string bridge() { return fmt::format("actortrain_test_{}_bridge", ::getpid()); }
  static std::string address(int node) { return fmt::format("10.212.0.{}", node + 1); }
  static bool set_up(int node) {
    return shell("ip netns add " + name(node)) &&
           shell(fmt::format("ip link add link0 netns {} type veth peer name link{} netns {}",
                             name(node), node, bridge())) &&
           shell(fmt::format("ip -n {} link set link{} master bridge0 up", bridge(), node)) &&
           shell(fmt::format("ip -n {} address add {}/24 dev link0", name(node), address(node))) &&
           shell(fmt::format("ip -n {} link set lo up", name(node))) &&
           shell(fmt::format("ip -n {} link set link0 up", name(node)));
  }

  int nodes_;
  bool made_ = false;
};

}  // namespace train::test
