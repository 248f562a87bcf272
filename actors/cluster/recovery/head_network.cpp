#include "actors/cluster/recovery/head_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/recovery/node_run.hpp"
#include "actors/head/cluster_actor.hpp"
#include "actors/system/actor_systems.hpp"
#include "base/exit_codes.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/run_events.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kFirstWord = 1s;  // Delay of the first message about nodes that the start waits for,
constexpr auto kBetweenWords = 10s;      // and interval of the following ones.
constexpr auto kReturnTime = 5s;         // Time for returned nodes to reach the next meeting.
constexpr auto kAnswerAfterSignal = 5s;  // Time after a signal for nodes that restore snapshots.
// Slowest assumed link between two nodes.
constexpr std::uint64_t kSlowestLink_bytes_s = 100'000'000;
constexpr auto kNodesIdle = 5s;  // Time for other nodes' ranks to end after the run is over.

/// Credentials of the first generation serve all: a disk that fills up meanwhile does not matter.
Result<CredentialFiles> credentials_of(const std::filesystem::path& directory, bool first) {
  if (!first) {
    if (auto kept = load_credentials(directory)) {
      return kept;
    }
  }
  return make_credentials(directory);
}

}  // namespace

HeadNetwork::HeadNetwork(run::PreparedRun& run)
    : run_(run),
      system_(make_actor_system(config_)),
      self_(*system_),
      cluster_(
          spawn_cluster(*system_, {.version = ACTORTRAIN_VERSION,
                                   .kernel_set = engine::kernel_set_name(
                                       run.config().runtime.device, run.config().precision.compute),
                                   .waiter = caf::actor_cast<caf::actor>(self_)})) {}

HeadNetwork::~HeadNetwork() {
  end({.again = false, .exit_code = kExitStopped});
  caf::anon_send_exit(cluster_, caf::exit_reason::user_shutdown);
}

Result<std::unique_ptr<HeadNetwork>> HeadNetwork::open(run::PreparedRun& run) {
  std::unique_ptr<HeadNetwork> network(new HeadNetwork(run));
  const auto& root = run.directory.root;
  const auto credentials = TRAIN_TRY(credentials_of(control_directory(root), run.generation == 0));
  auto options = TRAIN_TRY(listener_options(run.config().parallel));
  options.generation = run.generation;
  network->listener_ =
      TRAIN_TRY(HeadListener::open(*network->system_, network->cluster_, credentials, options));
  if (const Status told = network->tell_endpoint(); !told) {
    if (run.generation == 0) {
      return told.error();
    }
    log_warning(fmt::format("endpoint_not_written {}; other nodes do not find the head until it is",
                            told.error().message));
  }
  network->link_ = BuddyLink::open(network->config_.loop(), credentials, run.plan);
  return network;
}

Status HeadNetwork::tell_endpoint() {
  Status told =
      write_endpoint(endpoint_file(run_.directory.root), endpoint(), run_.nodes.position.start);
  endpoint_told_ = told.ok();
  return told;
}

bool HeadNetwork::takes_part(std::int64_t node) const {
  return std::binary_search(run_.nodes.members.begin(), run_.nodes.members.end(), node);
}

void HeadNetwork::joined(const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
  launchers_[node.node] = {.actor = caf::actor_cast<caf::actor>(launcher), .said = node};
  self_->monitor(launcher);
  run::note_event(run_, {.kind = "node_joined", .text = fmt::format("node {}", node.node)});
}

std::vector<std::int64_t> HeadNetwork::returned() const {
  std::vector<std::int64_t> nodes;
  for (const auto& [node, launcher] : launchers_) {
    if (!takes_part(node)) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

void HeadNetwork::send_returned_away() {
  for (const std::int64_t node : returned()) {
    self_->send(launchers_.extract(node).mapped().actor, GenerationOver{.without = true});
  }
}

const HeadNetwork::Launcher* HeadNetwork::launcher_at(std::size_t position) const {
  const auto found = launchers_.find(run_.nodes.members[position % run_.nodes.members.size()]);
  return found == launchers_.end() ? nullptr : &found->second;
}

run::Membership HeadNetwork::met() const {
  run::Membership met;
  for (std::size_t position = 1; position < run_.nodes.members.size(); ++position) {
    const Launcher* const launcher = launcher_at(position);
    met.held.push_back(launcher == nullptr ? NodeSteps() : launcher->said.held);
    if (launcher == nullptr) {
      met.missing.push_back(run_.nodes.members[position]);
    }
  }
  met.returned = returned();
  return met;
}

run::Membership HeadNetwork::meet(Clock::time_point deadline) {
  const auto back_by = Clock::now() + kReturnTime;
  const auto awaited = [&] {
    return missing() || (returned().size() < run_.nodes.awaited && Clock::now() < back_by);
  };
  auto next_word = Clock::now() + kFirstWord;
  while (awaited() && stop_signal() == 0 && Clock::now() < deadline) {
    if (Clock::now() >= next_word && !endpoint_told_) {
      (void)tell_endpoint();  // The failure has been logged.
    }
    if (Clock::now() >= next_word && missing()) {
      const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
      log_info(fmt::format("nodes_awaited waiting for {}; {} s are left",
                           run::node_names(met().missing), left.count()));
      next_word += kBetweenWords;
    }
    self_->receive(
        [&](const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
          if (launcher && node.node != run_.nodes.members.front()) {
            joined(node, launcher);
          }
        },
        [&](const caf::down_msg& down) { launcher_down(down); }, caf::after(50ms) >> [] {});
  }
  return met();
}

Status HeadNetwork::give_positions(std::int64_t memory_step, bool earlier) {
  std::set<std::int64_t> awaited;
  for (std::size_t position = 1; position < run_.nodes.members.size(); ++position) {
    if (const Launcher* const launcher = launcher_at(position)) {
      self_->send(launcher->actor,
                  TakePosition{.node = static_cast<std::int32_t>(position),
                               .nodes = static_cast<std::int32_t>(run_.nodes.members.size()),
                               .ranks = run_.config().parallel.ranks,
                               .memory_step = memory_step,
                               .earlier = earlier});
      awaited.insert(run_.nodes.members[position]);
    }
  }
  return await_answers(std::move(awaited));
}

Status HeadNetwork::await_answers(std::set<std::int64_t> nodes) {
  // Time limit: a live node moves all its own and its neighbour's snapshots through one link, and
  // verifies them.
  const run::SharedSnapshots own = run_.memory.current();
  const auto bytes = own ? checkpoint::MemorySnapshots::size_bytes(own->layout()) : 0;
  auto deadline = Clock::now() + std::chrono::seconds(run_.config().recovery.node_wait_s) +
                  std::chrono::seconds(bytes / kSlowestLink_bytes_s);
  bool hurried = false;
  Status result;
  while (result && !nodes.empty()) {
    if (!hurried && stop_signal() != 0) {
      hurried = true;
      deadline = std::min(deadline, Clock::now() + kAnswerAfterSignal);
    }
    if (Clock::now() >= deadline) {
      for (const std::int64_t node : nodes) {
        log_warning(
            fmt::format("node_silent node {} has not restored its snapshots in time", node));
        launchers_.erase(node);
      }
      return result;
    }
    self_->receive(
        [&](const MemoryRestored& done) {
          nodes.erase(done.node);
          if (!done.failure.empty()) {
            result = failure(fmt::format("node {}: {}", done.node, done.failure));
          }
        },
        [&](const caf::down_msg& down) {
          if (launcher_down(down)) {
            nodes.clear();  // The node is now missing(), and all meet again.
          }
        },
        caf::after(50ms) >> [] {});
  }
  return result;
}

std::string HeadNetwork::snapshots_of(std::size_t position) const {
  if (position % run_.nodes.members.size() == 0) {
    return link_ && run_.nodes.members.size() > 1 ? link_->address() : std::string();
  }
  const Launcher* const launcher = launcher_at(position);
  return launcher == nullptr ? std::string() : launcher->said.snapshots;
}

std::optional<std::int64_t> HeadNetwork::missing() const {
  const std::vector<std::int64_t> missing = met().missing;
  return missing.empty() ? std::nullopt : std::optional(missing.front());
}

Status HeadNetwork::restore_memory(std::int64_t step) {
  const std::size_t count = run_.nodes.members.size();
  const auto lacks = [&, head_lacks = !run_.memory.current()->has_sealed(step)](std::size_t node) {
    return node == 0 ? head_lacks : !run::has_step(launcher_at(node)->said.held.own, step);
  };
  std::set<std::int64_t> awaited;
  for (std::size_t position = count; position-- > 0;) {  // This node last, as its part blocks.
    const std::size_t before = (position + count - 1) % count;
    const RestoreMemory order{.step = step,
                              .give_to = lacks(before) ? snapshots_of(before) : std::string(),
                              .take = lacks(position)};
    if (order.give_to.empty() && !order.take) {
      continue;
    }
    if (position > 0) {
      awaited.insert(run_.nodes.members[position]);
      self_->send(launcher_at(position)->actor, order);
    } else {
      TRAIN_RETURN_IF_ERROR(link_ ? link_->restore(order, run_.memory)
                                  : Status(failure("node 0 takes and gives no snapshots")));
    }
  }
  return await_answers(std::move(awaited));
}

void HeadNetwork::start_ranks() {
  const auto start = run_.memory.start();
  for (std::size_t position = 1; position < run_.nodes.members.size(); ++position) {
    self_->send(launcher_at(position)->actor,
                StartRanks{.memory_step = start ? start->origin.step : -1,
                           .earlier = !run_.memory.before().empty(),
                           .buddy = snapshots_of(position + 1)});
  }
  if (link_) {
    link_->keep(snapshots_of(1), run_.memory);
  }
}

std::optional<std::int64_t> HeadNetwork::launcher_down(const caf::down_msg& down) {
  const auto lost = std::find_if(launchers_.begin(), launchers_.end(), [&down](const auto& one) {
    return one.second.actor.address() == down.source;
  });
  if (lost == launchers_.end()) {
    return std::nullopt;
  }
  const std::int64_t node = lost->first;
  launchers_.erase(lost);
  return takes_part(node) ? std::optional(node) : std::nullopt;
}

void HeadNetwork::end(const GenerationOver& over) {
  for (const auto& [node, launcher] : launchers_) {
    self_->send(launcher.actor, over);
  }
  const auto deadline = Clock::now() + kNodesIdle;
  while (!over.again && !launchers_.empty() && Clock::now() < deadline) {
    self_->receive([&](const NodeIdle& idle) { launchers_.erase(idle.node); },
                   [&](const caf::down_msg& down) { launcher_down(down); },
                   caf::after(50ms) >> [] {});
  }
  launchers_.clear();
}

Result<HeadListener::Options> listener_options(const configs::ParallelSection& parallel) {
  auto address = TRAIN_TRY(interface_address(parallel.interface));
  return HeadListener::Options{.address = std::move(address),
                               .port = static_cast<std::uint16_t>(parallel.port)};
}

}  // namespace train::actors
