#include "actors/cluster/recovery/node_run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "actors/cluster/recovery/exit_record.hpp"
#include "actors/cluster/recovery/respawns.hpp"
#include "actors/head/run_directory.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kHeadConnectTime = 30s;
constexpr auto kFirstRetry = 3s;  // of one try at an endpoint that may be an old one
constexpr auto kBetweenRetries = 100ms;
constexpr auto kEndWithoutHead = 3s;      // of ranks that nobody leads any more
constexpr auto kEndAfterFailure = 200ms;  // of ranks of a generation that is over
constexpr auto kVerdictTime = 10s;        // from the end of all ranks here to the head's word
constexpr auto kBetweenLooks = 1s;        // at what the ranks have in memory
constexpr auto kHeadNoticesLater = 10s;   // that a node is gone, than the node that the head is

/// How a generation of ranks ended on this node.
struct NodeEnd {
  bool again = false;  ///< To be followed by the next one, if the head comes to it.
  int exit_code = kExitFailure;
};

/// What a node's launcher has from generation to generation.
struct NodeRun {
  RunPlan plan;
  NodePosition place;      ///< Among the nodes that take part.
  std::int64_t node = 0;   ///< As the nodes were first numbered.
  NodeMemory memory = {};  ///< Of its ranks, and of those of the node before.
};

/// One generation of this node's ranks, from its connect_to_head at the head's listener.
class NodeGeneration {
 public:
  NodeGeneration(NodeRun& run, fs::path root)
      : run_(run), root_(std::move(root)), system_(config_), self_(system_) {}

  /// `patience`: for the head's listener. Errors: it stays shut.
  Result<NodeEnd> run(const Endpoint& endpoint, std::chrono::milliseconds patience);

 private:
  bool ordered();
  [[nodiscard]] NodeJoined introduction() const;
  Status take_place(const TakePosition& order);
  void answer(const Status& done);
  void follow(std::int64_t ranks);
  [[nodiscard]] NodeEnd verdict(bool started) const;

  NodeRun& run_;
  fs::path root_;
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor head_;
  std::unique_ptr<BuddyLink> link_;
  std::atomic<bool> clean_{true};  // no rank has ended in disorder
  bool alone_ = false;             // the head has ended or cannot be reached
  bool new_place_ = false;         // the ranks resume from those of the place before
  std::optional<GenerationOver> over_;
};

/// Waits for the order to start; false: none will come.
bool NodeGeneration::ordered() {
  bool start = false;
  while (!start && !over_ && !alone_) {
    self_->receive(
        [&](const StartRanks& order) {
          const std::int64_t step = order.memory_step;
          if (step < 0 || !new_place_) {
            run_.memory.go_on_from(step >= 0 ? std::optional(step) : std::nullopt, order.earlier);
          }
          if (link_) {
            link_->keep(order.buddy, run_.memory);
          }
          start = true;
        },
        [&](const TakePosition& order) { answer(take_place(order)); },
        [&](const RestoreMemory& order) {
          answer(link_ ? link_->restore(order, run_.memory) : failure("it is nobody's buddy"));
        },
        [&](const GenerationOver& over) { over_ = over; },
        [&](const caf::down_msg&) { alone_ = true; });
  }
  return start;
}

NodeJoined NodeGeneration::introduction() const {
  const auto step = [](const HeldSteps& steps, std::size_t index) {
    return index < steps.size() ? steps[index] : -1;
  };
  const NodeSteps held = run_.memory.held();
  return {.node = static_cast<std::int32_t>(run_.node),
          .newest_step = step(held.own, 0),
          .older_step = step(held.own, 1),
          .buddy_newest_step = step(held.buddy, 0),
          .buddy_older_step = step(held.buddy, 1),
          .earlier_step = held.earlier,
          .snapshots = link_ ? link_->address() : ""};
}

void NodeGeneration::answer(const Status& done) {
  self_->send(head_, MemoryRestored{static_cast<std::int32_t>(run_.node),
                                    done ? std::string() : done.error().message});
}

Status NodeGeneration::take_place(const TakePosition& order) {
  configs::RunConfig config = run_.plan.config;
  config.parallel.nodes = order.nodes;
  config.parallel.ranks = order.ranks;
  auto plan = plan_run(config);
  if (!plan) {
    return plan.error();
  }
  plan->separate_processes = run_.plan.separate_processes;
  run_.plan = std::move(plan).value();
  run_.place.node = order.place;
  run_.place.nodes = order.nodes;
  new_place_ = order.memory_step >= 0;
  if (new_place_) {
    run_.memory.go_on_from(order.memory_step, order.earlier);
  }
  return run_.memory.make_room(run_.plan, run_.place, new_place_);
}

/// Until all ranks here have ended, and the head has said what follows if they ended in disorder;
/// or it has said that others follow; or it is gone.
void NodeGeneration::follow(std::int64_t ranks) {
  const auto hear = [&](const GenerationOver& over) { over_ = over; };
  const auto down = [&](const caf::down_msg&) { alone_ = true; };
  while (ranks > 0 && !alone_ && !(over_ && over_->again)) {
    self_->receive([&](const WorkerExited&) { --ranks; }, hear, down,
                   caf::after(kBetweenLooks) >> [&] { run_.memory.finalize(); });
  }
  bool waiting = !clean_ && !alone_ && !over_;
  while (waiting) {
    self_->receive([&](const GenerationOver& over) { hear(over); },
                   [&](const caf::down_msg& lost) { down(lost); },
                   caf::after(kVerdictTime) >> [&] { waiting = false; });
    waiting = waiting && !alone_ && !over_;
  }
}

/// REQUIRES: none of the ranks runs any more.
NodeEnd NodeGeneration::verdict(bool started) const {
  if (started && clean_) {
    return {.again = false, .exit_code = kExitFinished};
  }
  if (over_ && over_->without) {
    log_warning(fmt::format("node {}: comes too late, the run goes on without it", run_.node));
    return {.again = false, .exit_code = kExitFinished};
  }
  if (over_) {
    return {.again = over_->again, .exit_code = over_->exit_code};
  }
  if (alone_ && can_respawn(run_.plan)) {
    return {.again = true};  // it may come back
  }
  log_error(fmt::format("node {}: the head is gone", run_.node));
  return {};
}

Result<NodeEnd> NodeGeneration::run(const Endpoint& endpoint, std::chrono::milliseconds patience) {
  const auto credentials = load_credentials(control_directory(root_));
  if (!credentials) {
    return credentials.error();
  }
  const auto head = connect_to_head(system_, *credentials, endpoint, patience);
  if (!head) {
    return head.error();
  }
  head_ = *head;
  self_->monitor(head_);
  link_ = BuddyLink::open(*credentials, run_.plan);
  self_->send(head_, introduction());
  WorkerProcesses workers([&, me = caf::actor_cast<caf::actor>(self_)](const WorkerEnd& end) {
    const WorkerExited exited{end.rank, static_cast<std::int32_t>(end.pid), end.text, end.killed};
    if (!end.clean) {
      clean_ = false;
      caf::anon_send(head_, exited);
    }
    caf::anon_send(me, exited);
  });
  const bool started = ordered();
  if (started) {
    const std::int64_t ranks = run_.plan.config.parallel.ranks;
    start_workers(workers, run_.place, ranks, endpoint, root_, run_.memory);
    const auto [first, end] = run_.place.ranks(ranks);
    follow(end - first);
  }
  // The head goes last when all is well; ranks that had joined it know that it is gone.
  workers.terminate_all(over_ && over_->again ? kEndAfterFailure : kEndWithoutHead);
  if (over_ && !over_->again) {
    self_->send(head_, NodeIdle{static_cast<std::int32_t>(run_.node)});
  }
  return verdict(started);
}

/// Where the head of the generation `from`, or a later one, listens; looks for it for so long, or
/// until a signal or the head's word that it has ended.
Result<Endpoint> look_for_head(const NodePosition& place, std::uint32_t from, const fs::path& root,
                               Clock::duration time) {
  return find_head(
      place, from, endpoint_file(root), std::chrono::ceil<std::chrono::milliseconds>(time),
      [&place, &root] { return stop_signal() != 0 || exit_record(root, place.start).has_value(); });
}

/// The first generation that this launcher takes part in: not always that of the run, for it may
/// have been started anew. `from` is then the one after it.
Result<NodeEnd> run_first(NodeRun& run, const fs::path& root, std::uint32_t& from) {
  const std::chrono::seconds head_time(run.plan.config.recovery.start_wait_s);
  const auto deadline = Clock::now() + kHeadConnectTime;
  for (;;) {
    const auto endpoint = look_for_head(run.place, 0, root, head_time);
    if (!endpoint) {
      return failure(fmt::format("{} (recovery.start_wait_s = {})", endpoint.error().message,
                                 head_time.count()));
    }
    from = run.place.generation_of(endpoint->start).value_or(0) + 1;
    // What was found may be of a generation that is at its end.
    auto end = NodeGeneration(run, root).run(*endpoint, kFirstRetry);
    if (end || Clock::now() >= deadline || stop_signal() != 0 ||
        exit_record(root, run.place.start)) {
      return end;
    }
    std::this_thread::sleep_for(kBetweenRetries);
  }
}

/// How the head has ended, if it has left word of that.
std::optional<int> exit_record_of_head(const NodeRun& run, const fs::path& root) {
  const auto word = exit_record(root, run.place.start);
  if (word) {
    log_info(fmt::format("node {}: the head has ended with exit code {}", run.node, *word));
  }
  return word;
}

int head_gone(const NodeRun& run, const fs::path& root) {
  if (const auto word = exit_record_of_head(run, root)) {
    return *word;
  }
  if (const int signal = stop_signal(); signal != 0) {
    log_info(fmt::format("node {}: stopped by signal {} without the head", run.node, signal));
  } else {
    log_error(fmt::format(
        "node {}: the head is gone, and has not come back within {} s (recovery.node_wait_s); run "
        "it again to go on from the newest checkpoint",
        run.node, run.plan.config.recovery.node_wait_s));
  }
  return kExitStopped;
}

}  // namespace

fs::path control_directory(const fs::path& root) { return root / "control"; }
fs::path endpoint_file(const fs::path& root) { return control_directory(root) / "endpoint"; }

void start_workers(WorkerProcesses& workers, const NodePosition& place, std::int64_t ranks,
                   const Endpoint& endpoint, const fs::path& root, const NodeMemory& memory) {
  const auto [first, end] = place.ranks(ranks);
  for (std::int64_t rank = first; rank < end; ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    auto words =
        worker_words(number, to_string(endpoint), fs::absolute(control_directory(root)).string());
    std::vector<int> inherited;
    const auto hand_over = [&](const char* option, const SharedSnapshots& snapshots) {
      if (snapshots) {
        inherited.push_back(snapshots->descriptor());
        words.insert(words.end(), {option, fmt::format("{}", snapshots->descriptor())});
      }
    };
    hand_over("--memory", memory.current());
    const std::vector<SharedSnapshots>& before = memory.before();
    hand_over("--memory-before", before.empty() ? nullptr : before.front());
    hand_over("--memory-buddy-before", before.size() < 2 ? nullptr : before.back());
    workers.start(number, std::move(words), std::move(inherited));
  }
}

int run_node(RunPlan plan, const NodePosition& place) {
  const fs::path root = run_root(plan.config);
  const std::chrono::seconds wait(plan.config.recovery.node_wait_s);
  const SignalWatcher signals([](int) {});  // the head hears it too, and decides for all
  NodeRun run{.plan = std::move(plan), .place = place, .node = place.node};
  if (const Status room = run.memory.make_room(run.plan, place); !room) {
    log_error(fmt::format("node {}: {}", run.node, room.error().message));
    return room.error().exit_code();
  }
  std::uint32_t from = 0;
  auto end = run_first(run, root, from);
  while (end && end->again) {
    const auto deadline = Clock::now() + wait + kHeadNoticesLater;
    const auto endpoint = look_for_head(run.place, from, root, deadline - Clock::now());
    if (!endpoint) {
      return head_gone(run, root);
    }
    from = run.place.generation_of(endpoint->start).value_or(from) + 1;
    end = NodeGeneration(run, root).run(
        *endpoint, std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
    if (!end) {
      return head_gone(run, root);
    }
  }
  if (!end) {
    if (const auto word = exit_record_of_head(run, root)) {
      return *word;
    }
    log_error(end.error().message);
    return end.error().exit_code();
  }
  return end->exit_code;
}

}  // namespace train::actors
