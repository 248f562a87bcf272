#include "actors/run/node_run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "actors/exit_codes.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/net/credentials.hpp"
#include "actors/net/head_door.hpp"
#include "actors/net/system_config.hpp"
#include "actors/run/signal_watcher.hpp"
#include "engine/base/log.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kKnockTime = 30s;
constexpr auto kEndWithoutHead = 3s;      // of ranks that nobody leads any more
constexpr auto kEndAfterFailure = 200ms;  // of ranks of a generation that is over
constexpr auto kVerdictTime = 10s;        // from the end of all ranks here to the head's word

/// How a generation of ranks ended on this node.
struct NodeEnd {
  bool again = false;
  int exit_code = kExitFailure;
};

/// One generation of this node's ranks, from its knock at the head's door.
class NodeGeneration {
 public:
  NodeGeneration(const RunPlan& plan, const NodePlace& place, fs::path root)
      : plan_(plan), place_(place), root_(std::move(root)), system_(config_), self_(system_) {}

  Result<NodeEnd> run(const Endpoint& endpoint);

 private:
  void follow(std::int64_t ranks);

  const RunPlan& plan_;
  const NodePlace& place_;
  fs::path root_;
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  bool alone_ = false;  // the head is gone
  std::optional<bool> again_;
  caf::actor head_;  // whom the word came from
};

/// Until all ranks here have ended, and the head has said what follows if they ended in disorder;
/// or the head is gone.
void NodeGeneration::follow(std::int64_t ranks) {
  bool clean = true;
  const auto hear = [&](const GenerationOver& over) {
    again_ = over.again;
    head_ = caf::actor_cast<caf::actor>(self_->current_sender());
  };
  const auto down = [&](const caf::down_msg&) { alone_ = true; };
  while (ranks > 0 && !alone_ && !again_.value_or(false)) {
    self_->receive(
        [&](const WorkerExited& worker) {
          --ranks;
          clean = clean && worker.text.empty();
        },
        hear, down);
  }
  bool waiting = !clean && !alone_ && !again_;
  while (waiting) {
    self_->receive([&](const GenerationOver& over) { hear(over); },
                   [&](const caf::down_msg& lost) { down(lost); },
                   caf::after(kVerdictTime) >> [&] { waiting = false; });
    waiting = waiting && !alone_ && !again_;
  }
}

Result<NodeEnd> NodeGeneration::run(const Endpoint& endpoint) {
  const auto credentials = load_credentials(control_directory(root_));
  if (!credentials) {
    return credentials.error();
  }
  const auto head = knock(system_, *credentials, endpoint, kKnockTime);
  if (!head) {
    return head.error();
  }
  self_->monitor(*head);
  self_->send(*head, NodeJoined{static_cast<std::int32_t>(place_.node)});
  std::atomic<bool> clean{true};
  WorkerProcesses workers([&, me = caf::actor_cast<caf::actor>(self_)](const WorkerEnd& end) {
    WorkerExited exited{end.rank, static_cast<std::int32_t>(end.pid), end.text, end.killed};
    if (end.clean) {
      exited.text.clear();
    } else {
      clean = false;
      caf::anon_send(*head, exited);
    }
    caf::anon_send(me, exited);
  });
  const std::int64_t ranks = plan_.config.parallel.ranks;
  start_workers(workers, place_, ranks, endpoint, root_, {});
  const auto [first, end] = place_.ranks(ranks);
  follow(end - first);
  if (again_.value_or(false)) {
    workers.terminate_all(kEndAfterFailure);
    self_->send(head_, NodeIdle{static_cast<std::int32_t>(place_.node)});
    // The head may find that another node is missing; its end is no news here.
    self_->receive([&](const GenerationOver& over) { again_ = over.again; },
                   [&](const caf::down_msg&) {}, caf::after(kVerdictTime) >> [] {});
    return NodeEnd{.again = *again_, .exit_code = kExitFailure};
  }
  // The head goes last when all is well; ranks that had joined it know that it is gone.
  if (workers.terminate_all(kEndWithoutHead) > 0) {
    log_error(fmt::format("node {}: the head is gone", place_.node));
  }
  return NodeEnd{.again = false, .exit_code = clean ? kExitFinished : kExitFailure};
}

}  // namespace

fs::path control_directory(const fs::path& root) { return root / "control"; }
fs::path endpoint_file(const fs::path& root) { return control_directory(root) / "endpoint"; }

void start_workers(WorkerProcesses& workers, const NodePlace& place, std::int64_t ranks,
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
    hand_over("--memory-before", memory.before());
    workers.start(number, std::move(words), std::move(inherited));
  }
}

int run_node(const RunPlan& plan, const NodePlace& place) {
  const fs::path root = fs::path(plan.config.run.dir) / plan.config.run.name;
  const SignalWatcher signals([](int) {});  // the head hears it too, and decides for all
  for (std::uint32_t generation = 0;; ++generation) {
    const auto endpoint = find_head(place, generation, endpoint_file(root));
    const auto end = endpoint ? NodeGeneration(plan, place, root).run(*endpoint)
                              : Result<NodeEnd>(endpoint.error());
    if (!end) {
      log_error(end.error().message);
      return end.error().exit_code();
    }
    if (!end->again) {
      return end->exit_code;
    }
  }
}

}  // namespace train::actors
