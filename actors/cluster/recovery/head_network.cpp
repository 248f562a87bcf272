#include "actors/cluster/recovery/head_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/cluster/network/cluster_actor.hpp"
#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/recovery/node_run.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "engine/rank/plan/run_device.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenWords = 10s;  // for whom the start waits
constexpr auto kReturnTime = 5s;     // of nodes that are back, to the next meeting
constexpr auto kNodesIdle = 5s;      // of other nodes' ranks, from the word that the run is over

/// Where the node is among `members`; none: it is not.
std::optional<std::int64_t> position_of(const std::vector<std::int64_t>& members,
                                        std::int64_t node) {
  const auto found = std::find(members.begin(), members.end(), node);
  return found == members.end() ? std::nullopt : std::optional(found - members.begin());
}

}  // namespace

HeadNetwork::HeadNetwork(const PreparedRun& run)
    : members_(run.members),
      awaited_(run.nodes_awaited),
      system_(config_),
      self_(system_),
      cluster_(
          spawn_cluster(system_, {.version = ACTORTRAIN_VERSION,
                                  .kernel_set = engine::kernel_set_name(
                                      run.config().runtime.device, run.config().precision.compute),
                                  .waiter = caf::actor_cast<caf::actor>(self_)})) {}

HeadNetwork::~HeadNetwork() {
  end_nodes(kExitStopped);
  caf::anon_send_exit(cluster_, caf::exit_reason::user_shutdown);
}

Result<std::unique_ptr<HeadNetwork>> HeadNetwork::open(const PreparedRun& run) {
  std::unique_ptr<HeadNetwork> network(new HeadNetwork(run));
  const auto& root = run.directory.root;
  const auto credentials = make_credentials(control_directory(root));
  TRAIN_RETURN_IF_ERROR(credentials);
  auto options = listener_options(run.config().parallel);
  TRAIN_RETURN_IF_ERROR(options);
  options->endpoint_file = endpoint_file(root);
  options->start = run.position.start_of(run.generation);
  auto listener = HeadListener::open(network->system_, network->cluster_, *credentials, *options);
  TRAIN_RETURN_IF_ERROR(listener);
  network->listener_ = std::move(listener).value();
  network->link_ = BuddyLink::open(network->config_.loop(), *credentials, run.plan);
  return network;
}

void HeadNetwork::joined(const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
  Launcher known = {
      .actor = caf::actor_cast<caf::actor>(launcher),
      .held = {.own = node.own_steps, .buddy = node.buddy_steps, .earlier = node.earlier_step},
      .snapshots = node.snapshots};
  self_->monitor(known.actor);
  const auto position = position_of(members_, node.node);
  (position ? launchers_[*position] : returned_[node.node]) = std::move(known);
}

void HeadNetwork::came_late(const NodeJoined& node, const caf::strong_actor_ptr& launcher,
                            bool welcome) {
  if (!launcher || position_of(members_, node.node)) {
    return;
  }
  if (welcome) {
    joined(node, launcher);
  } else {
    self_->send(caf::actor_cast<caf::actor>(launcher), GenerationOver{.without = true});
  }
}

std::vector<std::int64_t> HeadNetwork::returned() const {
  std::vector<std::int64_t> nodes;
  for (const auto& [node, launcher] : returned_) {
    nodes.push_back(node);
  }
  return nodes;
}

void HeadNetwork::send_returned_away() {
  for (const auto& [node, launcher] : returned_) {
    self_->send(launcher.actor, GenerationOver{.without = true});
  }
  returned_.clear();
}

Membership HeadNetwork::met() const {
  Membership met;
  for (std::int64_t position = 1; position < count(); ++position) {
    const auto launcher = launchers_.find(position);
    met.held.push_back(launcher == launchers_.end() ? NodeSteps() : launcher->second.held);
    if (launcher == launchers_.end()) {
      met.missing.push_back(position);
    }
  }
  met.returned = returned();
  return met;
}

Membership HeadNetwork::meet(Clock::time_point deadline) {
  const auto back_by = Clock::now() + kReturnTime;
  const auto awaited = [&] {
    return !met().complete() || (returned_.size() < awaited_ && Clock::now() < back_by);
  };
  auto next_word = Clock::now() + kBetweenWords;
  while (awaited() && stop_signal() == 0 && Clock::now() < deadline) {
    if (Clock::now() >= next_word && !met().complete()) {
      const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
      log_info(fmt::format("nodes_awaited {} not come yet; {} s are left",
                           missing_have(met(), members_), left.count()));
      next_word += kBetweenWords;
    }
    self_->receive(
        [&](const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
          if (launcher && position_of(members_, node.node) != 0) {
            joined(node, launcher);
          }
        },
        [&](const caf::down_msg& down) { launcher_down(down); }, caf::after(50ms) >> [] {});
  }
  return met();
}

void HeadNetwork::change_members(const std::vector<std::int64_t>& members) {
  std::map<std::int64_t, Launcher> launchers;
  for (std::size_t position = 1; position < members.size(); ++position) {
    const auto before = position_of(members_, members[position]);
    auto known = before ? launchers_.extract(*before) : returned_.extract(members[position]);
    if (known) {
      launchers.emplace(static_cast<std::int64_t>(position), std::move(known.mapped()));
    }
  }
  members_ = members;
  launchers_ = std::move(launchers);
}

Status HeadNetwork::give_positions(const PreparedRun& run, std::int64_t memory_step, bool earlier) {
  std::set<std::int64_t> awaited;
  for (const auto& [position, launcher] : launchers_) {
    self_->send(launcher.actor, TakePosition{.node = static_cast<std::int32_t>(position),
                                             .nodes = static_cast<std::int32_t>(count()),
                                             .ranks = run.config().parallel.ranks,
                                             .memory_step = memory_step,
                                             .earlier = earlier});
    awaited.insert(position);
  }
  return await_answers(std::move(awaited));
}

/// Of MemoryRestored from the nodes at `positions`, unless one is lost meanwhile.
Status HeadNetwork::await_answers(std::set<std::int64_t> positions) {
  Status result;
  while (result && !positions.empty()) {
    self_->receive(
        [&](const MemoryRestored& done) {
          positions.erase(position_of(members_, done.node).value_or(-1));
          if (!done.failure.empty()) {
            result = failure(fmt::format("node {}: {}", done.node, done.failure));
          }
        },
        [&](const caf::down_msg& down) {
          if (launcher_down(down)) {
            positions.clear();  // it is missing(), and all meet again
          }
        });
  }
  return result;
}

std::string HeadNetwork::snapshots_of(std::int64_t position) const {
  if (count() == 1) {
    return {};
  }
  if (position % count() == 0) {
    return link_ ? link_->address() : std::string();
  }
  const auto launcher = launchers_.find(position);
  return launcher == launchers_.end() ? std::string() : launcher->second.snapshots;
}

std::optional<std::int64_t> HeadNetwork::missing() const {
  for (std::int64_t position = 1; position < count(); ++position) {
    if (!launchers_.contains(position)) {
      return position;
    }
  }
  return std::nullopt;
}

Status HeadNetwork::restore_memory(std::int64_t step, NodeMemory& own) {
  const bool head_lacks = !own.current()->has_sealed(step);
  const auto lacks = [&](std::int64_t node) {
    return node == 0 ? head_lacks : !has_step(launchers_.at(node).held.own, step);
  };
  RestoreMemory here;
  std::set<std::int64_t> awaited;
  for (std::int64_t node = 0; node < count(); ++node) {
    const std::int64_t before = (node + count() - 1) % count();
    const RestoreMemory order{.step = step,
                              .give_to = lacks(before) ? snapshots_of(before) : std::string(),
                              .take = lacks(node)};
    if (order.give_to.empty() && !order.take) {
      continue;
    }
    if (node == 0) {
      here = order;
    } else {
      awaited.insert(node);
      self_->send(launchers_.at(node).actor, order);
    }
  }
  if (!here.give_to.empty() || here.take) {
    TRAIN_RETURN_IF_ERROR(link_ ? link_->restore(here, own)
                                : Status(failure("node 0 takes and gives no snapshots")));
  }
  return await_answers(std::move(awaited));
}

void HeadNetwork::start_ranks(std::optional<std::int64_t> memory_step, const NodeMemory& own) {
  for (const auto& [position, launcher] : launchers_) {
    self_->send(launcher.actor, StartRanks{.memory_step = memory_step.value_or(-1),
                                           .earlier = !own.before().empty(),
                                           .buddy = snapshots_of(position + 1)});
  }
  if (link_) {
    link_->keep(snapshots_of(1), own);
  }
}

std::optional<std::int64_t> HeadNetwork::launcher_down(const caf::down_msg& down) {
  for (const auto& [node, launcher] : launchers_) {
    if (launcher.actor.address() == down.source) {
      const std::int64_t lost = node;
      launchers_.erase(node);
      return lost;
    }
  }
  std::erase_if(returned_,
                [&down](const auto& one) { return one.second.actor.address() == down.source; });
  return std::nullopt;
}

void HeadNetwork::tell_all(const GenerationOver& over) {
  for (const auto* launchers : {&launchers_, &returned_}) {
    for (const auto& [key, launcher] : *launchers) {
      self_->send(launcher.actor, over);
    }
  }
}

void HeadNetwork::end_generation() {
  tell_all({.again = true});
  launchers_.clear();
  returned_.clear();
}

void HeadNetwork::end_nodes(std::int32_t exit_code) {
  tell_all({.again = false, .exit_code = exit_code});
  const auto deadline = Clock::now() + kNodesIdle;
  while (!(launchers_.empty() && returned_.empty()) && Clock::now() < deadline) {
    self_->receive(
        [&](const NodeIdle& idle) {
          launchers_.erase(position_of(members_, idle.node).value_or(-1));
          returned_.erase(idle.node);
        },
        [&](const caf::down_msg& down) { launcher_down(down); }, caf::after(50ms) >> [] {});
  }
  launchers_.clear();
  returned_.clear();
}

Result<HeadListener::Options> listener_options(const configs::ParallelSection& parallel) {
  auto address = interface_address(parallel.interface);
  TRAIN_RETURN_IF_ERROR(address);
  return HeadListener::Options{.address = std::move(address).value(),
                               .port = static_cast<std::uint16_t>(parallel.port)};
}

}  // namespace train::actors
