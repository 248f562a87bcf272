#include "actors/cluster/network/cluster_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "actors/handles.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

// A rank that could not connect may only have lost another one, whose end its node tells.
constexpr std::chrono::milliseconds kCauseTime{300};

struct ClusterState {
  static inline const char* name = "cluster";
  std::set<std::int32_t> joined;
  std::map<caf::actor_addr, std::int32_t> processes;
  std::optional<Assignment> assignment;  // the same for all ranks; none: not open yet
  std::int64_t ranks = 0;
  std::uint64_t plan_digest = 0;
  std::string data_fingerprint;
  ClusterReady ready;
  std::size_t ready_count = 0;
  bool over = false;    // the waiter has its answer
  bool failed = false;  // which is that the run cannot start
};

using ClusterSelf = caf::stateful_actor<ClusterState>*;

struct Cluster {
  ClusterSelf self;
  ClusterOptions options;

  [[nodiscard]] ClusterState& state() const { return self->state; }
  [[nodiscard]] std::string refusal(const JoinCluster& worker) const;
  [[nodiscard]] std::string disagreement(const WorkerReady& worker) const;
  void open(const OpenCluster& order) const;
  void ready(const WorkerReady& worker) const;
  void exited(const WorkerExited& worker) const;
  void watch(std::int32_t rank) const;
  void fail(const ClusterFailed& verdict) const;
  void fail_later(const ClusterFailed& verdict) const;
};

std::string Cluster::refusal(const JoinCluster& worker) const {
  if (!state().assignment) {
    return fmt::format("rank {} comes too early: nobody has started it", worker.rank);
  }
  if (state().over) {
    return fmt::format("rank {} comes too late: the run has started or ended", worker.rank);
  }
  if (worker.version != options.version) {
    return fmt::format(
        "rank {} on {} is actortrain {}, the head is {}: install the same version on every node",
        worker.rank, worker.host, worker.version, options.version);
  }
  if (worker.rank < 0 || worker.rank >= state().ranks) {
    return fmt::format("rank {} does not exist: parallel.ranks is {}", worker.rank, state().ranks);
  }
  if (state().joined.contains(worker.rank)) {
    return fmt::format("rank {} is there already", worker.rank);
  }
  return {};
}

std::string Cluster::disagreement(const WorkerReady& worker) const {
  if (worker.data_fingerprint != state().data_fingerprint) {
    return fmt::format(
        "rank {} sees other data in data.dir ({}) than the head ({}): give every node the same "
        "token files",
        worker.rank, worker.data_fingerprint, state().data_fingerprint);
  }
  if (worker.plan_digest != state().plan_digest) {
    return fmt::format(
        "rank {} derives another plan ({:016x}) than the head ({:016x}): it runs another build; "
        "install the same on every node",
        worker.rank, worker.plan_digest, state().plan_digest);
  }
  if (worker.kernel_set != options.kernel_set) {
    return fmt::format(
        "rank {} computes with {}, the head with {}: the same bits need the same kernels; use "
        "nodes of one kind",
        worker.rank, worker.kernel_set, options.kernel_set);
  }
  return {};
}

void Cluster::open(const OpenCluster& order) const {
  state().assignment = order.assignment;
  state().ranks = order.ranks;
  state().plan_digest = order.plan_digest;
  state().data_fingerprint = order.data_fingerprint;
  state().ready.ranks.resize(static_cast<std::size_t>(order.ranks));
  state().ready.processes.resize(static_cast<std::size_t>(order.ranks));
}

void Cluster::ready(const WorkerReady& worker) const {
  if (const std::string text = disagreement(worker); !text.empty()) {
    fail({text, 2});
    return;
  }
  const auto rank = static_cast<std::size_t>(worker.rank);
  state().ready.ranks.at(rank) = worker.rank_actor;
  state().ready.processes.at(rank) = worker.process;
  if (++state().ready_count == state().ready.ranks.size() && !state().over) {
    state().over = true;
    self->send(options.waiter, state().ready);
  }
}

void Cluster::exited(const WorkerExited& worker) const {
  const std::string reason = fmt::format("its process ended: {}", worker.text);
  if (!state().over) {
    fail({fmt::format("rank {} failed: {}", worker.rank, reason), 1, worker.killed});
  } else if (state().assignment) {
    caf::anon_send(caf::actor_cast<ConductorActor>(state().assignment->conductor),
                   RankFailed{worker.rank, reason, 1, false, worker.killed});
  }
}

// A process of another node ends unseen if its launcher ends with it.
void Cluster::watch(std::int32_t rank) const {
  if (const caf::strong_actor_ptr process = self->current_sender()) {
    state().processes[caf::actor_cast<caf::actor_addr>(process)] = rank;
    self->monitor(caf::actor_cast<caf::actor>(process));
  }
}

void Cluster::fail_later(const ClusterFailed& verdict) const {
  self->delayed_send(caf::actor_cast<caf::actor>(self), kCauseTime, verdict);
}

void Cluster::fail(const ClusterFailed& verdict) const {
  if (!state().over) {
    state().over = state().failed = true;
    self->send(options.waiter, verdict);
  }
}

caf::behavior cluster_behavior(ClusterSelf self, const ClusterOptions& options) {
  report_exceptions(self, "cluster", [] { return std::int64_t{-1}; });
  const Cluster cluster{self, options};
  self->set_down_handler([cluster](const caf::down_msg& down) {
    cluster.fail_later({fmt::format("rank {} failed: its process is gone or cannot be reached",
                                    cluster.state().processes.at(down.source)),
                        1, true});
  });
  return {
      [cluster](const OpenCluster& order) { cluster.open(order); },
      [cluster](const JoinCluster& worker) -> caf::message {
        const std::string text = cluster.refusal(worker);
        if (!text.empty()) {
          return caf::make_message(Refused{text, cluster.state().failed});
        }
        cluster.state().joined.insert(worker.rank);
        cluster.watch(worker.rank);
        return caf::make_message(*cluster.state().assignment);
      },
      [cluster](const WorkerReady& worker) {
        if (worker.rank >= 0 && worker.rank < cluster.state().ranks) {
          cluster.ready(worker);
        }
      },
      [cluster](const WorkerFailed& worker) {
        if (worker.exit_code == 1 && !worker.cause) {
          cluster.fail_later({worker.text, 1, worker.lost});
        } else {
          cluster.fail({worker.text, worker.exit_code});
        }
      },
      [cluster](const ClusterFailed& verdict) { cluster.fail(verdict); },
      [cluster](const WorkerExited& worker) { cluster.exited(worker); },
      [cluster](const NodeJoined& node) {
        cluster.self->send(cluster.options.waiter, node, cluster.self->current_sender());
      },
      [cluster](const MemoryRestored& node) { cluster.self->send(cluster.options.waiter, node); },
      [cluster](const NodeIdle& node) { cluster.self->send(cluster.options.waiter, node); },
  };
}

}  // namespace

caf::actor spawn_cluster(caf::actor_system& system, const ClusterOptions& options) {
  return system.spawn(cluster_behavior, options);
}

}  // namespace train::actors
