#include "actors/head/cluster_actor.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <map>
#include <optional>
#include <set>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/system/handles.hpp"
#include "actors/system/supervision.hpp"
#include "base/exit_codes.hpp"
#include "run/recovery/verdict.hpp"

namespace train::actors {
namespace {

struct ClusterState;
using ClusterSelf = caf::stateful_actor<ClusterState>*;

struct ClusterState {
  static inline const char* name = "cluster";
  explicit ClusterState(ClusterSelf own) : self(own) {}

  ClusterOptions options;

  [[nodiscard]] std::string refusal(const JoinCluster& worker) const {
    if (!order_) {
      return fmt::format("rank {} comes too early: nobody has started it", worker.rank);
    }
    if (!verdict_.starts()) {
      return fmt::format("rank {} comes too late: the run has started or ended", worker.rank);
    }
    if (worker.version != options.version) {
      return fmt::format(
          "rank {} on {} is actortrain {}, the head is {}: install the same version on every node",
          worker.rank, worker.host, worker.version, options.version);
    }
    if (worker.rank < 0 || worker.rank >= order_->ranks) {
      return fmt::format("rank {} does not exist: parallel.ranks is {}", worker.rank,
                         order_->ranks);
    }
    if (joined_.contains(worker.rank)) {
      return fmt::format("rank {} is there already", worker.rank);
    }
    return {};
  }

  [[nodiscard]] std::string disagreement(const WorkerReady& worker) const {
    if (worker.data_fingerprint != order_->data_fingerprint) {
      return fmt::format(
          "rank {} sees other data in data.dir ({}) than the head ({}): give every node the same "
          "token files",
          worker.rank, worker.data_fingerprint, order_->data_fingerprint);
    }
    if (worker.plan_digest != order_->plan_digest) {
      return fmt::format(
          "rank {} derives another plan ({:016x}) than the head ({:016x}): it runs another build; "
          "install the same on every node",
          worker.rank, worker.plan_digest, order_->plan_digest);
    }
    if (worker.kernel_set != options.kernel_set) {
      return fmt::format(
          "rank {} computes with {}, the head with {}: the same bits need the same kernels; use "
          "nodes of one kind",
          worker.rank, worker.kernel_set, options.kernel_set);
    }
    return {};
  }

  void open(const OpenCluster& order) {
    order_ = order;
    ready_.ranks.resize(static_cast<std::size_t>(order.ranks));
    ready_.processes.resize(static_cast<std::size_t>(order.ranks));
  }

  void ready(const WorkerReady& worker) {
    if (const std::string text = disagreement(worker); !text.empty()) {
      failed({worker.rank, text, kExitUserError});
      return;
    }
    const auto rank = static_cast<std::size_t>(worker.rank);
    ready_.ranks.at(rank) = worker.rank_actor;
    ready_.processes.at(rank) = worker.process;
    if (++ready_count_ == ready_.ranks.size()) {
      carry_out(verdict_.ready(signal_.has_value()));
    }
  }

  void exited(const WorkerExited& worker) {
    const std::string reason = fmt::format("its process ended: {}", worker.text);
    if (verdict_.starts()) {
      failed({worker.rank, fmt::format("rank {} failed: {}", worker.rank, reason), kExitFailure,
              /*consequence=*/false, worker.killed});
    } else if (order_) {
      caf::anon_send(caf::actor_cast<ConductorActor>(order_->assignment.conductor),
                     RankFailed{worker.rank, reason, kExitFailure, false, worker.killed});
    }
  }

  // Watches a process of another node: its end goes unreported if its launcher ends with it.
  void watch(std::int32_t rank) {
    if (const caf::strong_actor_ptr process = self->current_sender()) {
      processes_[caf::actor_cast<caf::actor_addr>(process)] = rank;
      self->monitor(caf::actor_cast<caf::actor>(process));
    }
  }

  /// `failure`: its text names the rank. The conductor monitors training ranks itself.
  void failed(const RankFailed& failure) {
    if (verdict_.starts()) {
      carry_out(verdict_.failed(failure, ready_.ranks.size()));
    }
  }

  void launcher_lost(const LauncherLost& lost) {
    if (!verdict_.starts()) {
      return self->send(options.waiter, lost);  // The waiter knows that ranks train.
    }
    // The node's ranks may not have joined yet, and never will.
    carry_out(verdict_.launcher_lost(lost.node));
  }

  void signalled(const StopRequested& stop) {
    if (!verdict_.starts()) {
      return self->send(options.waiter, stop);
    }
    signal_ = stop;
    carry_out(verdict_.signal(stop.signal, order_ && order_->assignment.memory.step >= 0));
  }

  void carry_out(const run::HeadStep& step) {
    if (step.has(run::HeadAction::wait_for_cause)) {
      self->delayed_send(caf::actor_cast<caf::actor>(self), verdict_.cause_time(), CauseTimeout{});
    }
    if (step.has(run::HeadAction::connect)) {
      self->send(options.waiter, ready_);
    }
    if (step.has(run::HeadAction::save)) {
      self->send(options.waiter, *signal_);  // For the conductor.
    }
    if (step.has(run::HeadAction::end_ranks)) {
      self->send(options.waiter, verdict_.outcome(0));
    }
  }

  ClusterSelf self;
  std::set<std::int32_t> joined_;
  std::map<caf::actor_addr, std::int32_t> processes_;
  std::optional<OpenCluster> order_;  // None: not open yet.
  ClusterReady ready_;
  std::size_t ready_count_ = 0;
  std::optional<StopRequested> signal_;             // Received stop signal.
  run::Verdict verdict_{run::HeadState::starting};  // Verdict on starting ranks.
};

caf::behavior cluster_behavior(ClusterSelf self, const ClusterOptions& options) {
  report_exceptions(self, "cluster", [] { return std::int64_t{-1}; });
  ClusterState* const state = &self->state;
  state->options = options;
  self->set_down_handler([state](const caf::down_msg& down) {
    const std::int32_t rank = state->processes_.at(down.source);
    state->failed({rank,
                   fmt::format("rank {} failed: its process is gone or cannot be reached", rank),
                   kExitFailure, /*consequence=*/true, /*lost=*/true});
  });
  return {
      [state](const OpenCluster& order) { state->open(order); },
      [state](const JoinCluster& worker) -> caf::message {
        const std::string text = state->refusal(worker);
        if (!text.empty()) {
          return caf::make_message(Refused{text, state->verdict_.over()});
        }
        state->joined_.insert(worker.rank);
        state->watch(worker.rank);
        return caf::make_message(state->order_->assignment);
      },
      [state](const WorkerReady& worker) {
        if (state->order_ && worker.rank >= 0 && worker.rank < state->order_->ranks) {
          state->ready(worker);
        }
      },
      [state](const WorkerFailed& worker) {
        const bool consequence = worker.exit_code == kExitFailure && !worker.cause;
        state->failed({worker.rank, worker.text, worker.exit_code, consequence,
                       consequence && worker.lost, worker.damaged});
      },
      [state](const LauncherLost& lost) { state->launcher_lost(lost); },
      [state](const StopRequested& stop) { state->signalled(stop); },
      [state](const CauseTimeout&) { state->carry_out(state->verdict_.conclude()); },
      [state](const WorkerExited& worker) { state->exited(worker); },
      [state](const NodeJoined& node) {
        state->self->send(state->options.waiter, node, state->self->current_sender());
      },
      [state](const MemoryRestored& node) { state->self->send(state->options.waiter, node); },
      [state](const NodeIdle& node) { state->self->send(state->options.waiter, node); },
  };
}

}  // namespace

caf::actor spawn_cluster(caf::actor_system& system, const ClusterOptions& options) {
  return system.spawn(cluster_behavior, options);
}

}  // namespace train::actors
