#include "actors/cluster/recovery/node_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <caf/all.hpp>
#include <charconv>
#include <chrono>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "actors/cluster/recovery/verdict.hpp"
#include "actors/head/run_directory.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 4096;

fs::path exit_record_file(const fs::path& root) { return control_directory(root) / "ended"; }

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kHeadConnectTime = 30s;
constexpr auto kFirstRetry = 3s;  // of one try at an endpoint that may be an old one
constexpr auto kBetweenRetries = 100ms;
constexpr auto kEndWithoutHead = 3s;      // of ranks that nobody leads any more
constexpr auto kEndAfterFailure = 200ms;  // of ranks of a generation that is over
constexpr auto kVerdictTime = 10s;        // from the end of all ranks here to the head's answer
constexpr auto kBetweenLooks = 1s;        // at what the ranks have in memory
constexpr auto kHeadNoticesLater = 10s;   // that a node is gone, than the node that the head is

/// What a node's launcher has from generation to generation.
struct NodeRun {
  RunPlan plan;
  NodePosition position;   ///< Among the nodes that take part.
  std::int64_t node = 0;   ///< As the nodes were first numbered.
  NodeMemory memory = {};  ///< Of its ranks, and of those of the node before.
};

/// One generation of this node's ranks, from its connect_to_head at the head's listener.
class NodeGeneration {
 public:
  NodeGeneration(NodeRun& run, fs::path root)
      : run_(run), root_(std::move(root)), system_(config_), self_(system_) {}

  /// `patience`: for the head's listener. Errors: it stays shut.
  Result<NodeEnd> run(const Endpoint& endpoint, std::chrono::milliseconds patience) {
    const auto credentials = load_credentials(control_directory(root_));
    TRAIN_RETURN_IF_ERROR(credentials);
    const auto head = connect_to_head(system_, *credentials, endpoint, patience);
    TRAIN_RETURN_IF_ERROR(head);
    head_ = *head;
    self_->monitor(head_);
    link_ = BuddyLink::open(config_.loop(), *credentials, run_.plan);
    self_->send(head_, introduction());
    WorkerProcesses workers(config_.loop(),
                            [&, me = caf::actor_cast<caf::actor>(self_)](const WorkerEnd& end) {
                              const WorkerExited exited{end.rank, end.text, end.killed};
                              if (!end.clean) {
                                clean_ = false;
                                caf::anon_send(head_, exited);
                              }
                              caf::anon_send(me, exited);
                            });
    const bool started = ordered();
    if (started) {
      const std::int64_t ranks = run_.plan.config.parallel.ranks;
      start_workers(workers, run_.position, ranks, endpoint, root_, run_.memory);
      const auto [first, end] = run_.position.ranks(ranks);
      follow(end - first);
    }
    // The head goes last when all is well; ranks that had joined it know that it is gone.
    workers.terminate_all(over_ && over_->again ? kEndAfterFailure : kEndWithoutHead);
    if (over_ && !over_->again) {
      self_->send(head_, NodeIdle{static_cast<std::int32_t>(run_.node)});
    }
    NodeEnd end = node_end(run_.node, started && clean_, over_, head_lost_, run_.plan);
    if (!end.warning.empty()) {
      log_warning(end.warning);
    }
    if (!end.error.empty()) {
      log_error(end.error);
    }
    return end;
  }

 private:
  /// Waits for the order to start; false: none will come.
  bool ordered() {
    bool start = false;
    while (!start && !over_ && !head_lost_) {
      self_->receive(
          [&](const StartRanks& order) {
            const std::int64_t step = order.memory_step;
            if (step < 0 || !new_position_) {
              run_.memory.resume_from(step >= 0 ? std::optional(step) : std::nullopt,
                                      order.earlier);
            }
            if (link_) {
              link_->keep(order.buddy, run_.memory);
            }
            start = true;
          },
          [&](const TakePosition& order) { answer(take_position(order)); },
          [&](const RestoreMemory& order) {
            answer(link_ ? link_->restore(order, run_.memory) : failure("it is nobody's buddy"));
          },
          [&](const GenerationOver& over) { over_ = over; },
          [&](const caf::down_msg&) { head_lost_ = true; });
    }
    return start;
  }

  [[nodiscard]] NodeJoined introduction() {
    NodeSteps held = run_.memory.held();
    return {.node = static_cast<std::int32_t>(run_.node),
            .own_steps = std::move(held.own),
            .buddy_steps = std::move(held.buddy),
            .earlier_step = held.earlier,
            .snapshots = link_ ? link_->address() : ""};
  }

  Status take_position(const TakePosition& order) {
    auto plan = plan_with(run_.plan, order.nodes, order.ranks);
    TRAIN_RETURN_IF_ERROR(plan);
    run_.plan = std::move(plan).value();
    run_.position.node = order.node;
    run_.position.nodes = order.nodes;
    new_position_ = order.memory_step >= 0;
    if (new_position_) {
      run_.memory.resume_from(order.memory_step, order.earlier);
    }
    return run_.memory.make_room(run_.plan, run_.position, new_position_);
  }

  void answer(const Status& done) {
    self_->send(head_, MemoryRestored{static_cast<std::int32_t>(run_.node),
                                      done ? std::string() : done.error().message});
  }

  /// Until all ranks here have ended, and the head has said what follows if they ended in disorder;
  /// or it has said that others follow; or it is gone.
  void follow(std::int64_t ranks) {
    while (ranks > 0 && !head_lost_ && !(over_ && over_->again)) {
      self_->receive([&](const WorkerExited&) { --ranks; },
                     [&](const GenerationOver& over) { over_ = over; },
                     [&](const caf::down_msg&) { head_lost_ = true; },
                     caf::after(kBetweenLooks) >> [&] { run_.memory.finalize(); });
    }
    if (!clean_ && !head_lost_ && !over_) {
      self_->receive([&](const GenerationOver& over) { over_ = over; },
                     [&](const caf::down_msg&) { head_lost_ = true; },
                     caf::after(kVerdictTime) >> [] {});
    }
  }

  NodeRun& run_;
  fs::path root_;
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor head_;
  std::unique_ptr<BuddyLink> link_;
  std::atomic<bool> clean_{true};  // no rank has ended in disorder
  bool head_lost_ = false;         // the head has ended or cannot be reached
  bool new_position_ = false;      // the ranks resume from those of the position before
  std::optional<GenerationOver> over_;
};

/// Where the head of the generation `from`, or a later one, listens; looks for it for so long, or
/// until a signal or the head's exit record.
Result<Endpoint> look_for_head(const NodePosition& position, std::uint32_t from,
                               const fs::path& root, Clock::duration time) {
  return find_head(position, from, endpoint_file(root),
                   std::chrono::ceil<std::chrono::milliseconds>(time), [&position, &root] {
                     return stop_signal() != 0 || exit_record(root, position.start).has_value();
                   });
}

/// The first generation that this launcher takes part in: not always that of the run, for it may
/// have been started anew. `from` is then the one after it.
Result<NodeEnd> run_first(NodeRun& run, const fs::path& root, std::uint32_t& from) {
  const std::chrono::seconds head_time(run.plan.config.recovery.start_wait_s);
  const auto deadline = Clock::now() + kHeadConnectTime;
  for (;;) {
    const auto endpoint = look_for_head(run.position, 0, root, head_time);
    if (!endpoint) {
      return failure(fmt::format("{} (recovery.start_wait_s = {})", endpoint.error().message,
                                 head_time.count()));
    }
    from = run.position.generation_of(endpoint->start).value_or(0) + 1;
    // What was found may be of a generation that is at its end.
    auto end = NodeGeneration(run, root).run(*endpoint, kFirstRetry);
    if (end || Clock::now() >= deadline || stop_signal() != 0 ||
        exit_record(root, run.position.start)) {
      return end;
    }
    std::this_thread::sleep_for(kBetweenRetries);
  }
}

/// How the head has ended, if it has left a record.
std::optional<int> exit_record_of_head(const NodeRun& run, const fs::path& root) {
  const auto record = exit_record(root, run.position.start);
  if (record) {
    log_info(fmt::format("node {}: the head has ended with exit code {}", run.node, *record));
  }
  return record;
}

int head_gone(const NodeRun& run, const fs::path& root) {
  if (const auto record = exit_record_of_head(run, root)) {
    return *record;
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

void forget_exit_record(const fs::path& root) { ::unlink(exit_record_file(root).c_str()); }

void leave_exit_record(const fs::path& root, const std::string& start, int exit_code) {
  std::error_code error;
  if (!fs::exists(root / "config.toml", error)) {
    return;  // it has come to no run
  }
  Status left = storage::make_private_directory(control_directory(root));
  if (left) {
    left = storage::write_private_file(exit_record_file(root),
                                       fmt::format("{}\n{}\n", exit_code, start));
  }
  if (!left) {
    log_warning(fmt::format("no_word_to_other_nodes {}", left.error().message));
  }
}

std::optional<int> exit_record(const fs::path& root, const std::string& start) {
  const auto text = storage::read_file(exit_record_file(root), kMostBytes);
  if (!text) {
    return std::nullopt;
  }
  const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
  int exit_code = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), exit_code);
  const bool whole = error == std::errc() && *text == fmt::format("{}\n{}\n", exit_code, start);
  return whole ? std::optional(exit_code) : std::nullopt;
}

fs::path control_directory(const fs::path& root) { return root / "control"; }
fs::path endpoint_file(const fs::path& root) { return control_directory(root) / "endpoint"; }

void start_workers(WorkerProcesses& workers, const NodePosition& position, std::int64_t ranks,
                   const Endpoint& endpoint, const fs::path& root, const NodeMemory& memory) {
  const auto [first, end] = position.ranks(ranks);
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

int run_node(RunPlan plan, const NodePosition& position) {
  const fs::path root = run_root(plan.config);
  const std::chrono::seconds wait(plan.config.recovery.node_wait_s);
  const SignalWatcher signals([](int) {});  // the head hears it too, and decides for all
  NodeRun run{.plan = std::move(plan), .position = position, .node = position.node};
  if (const Status room = run.memory.make_room(run.plan, position); !room) {
    log_error(fmt::format("node {}: {}", run.node, room.error().message));
    return room.error().exit_code();
  }
  std::uint32_t from = 0;
  auto end = run_first(run, root, from);
  while (end && end->again) {
    const auto deadline = Clock::now() + wait + kHeadNoticesLater;
    const auto endpoint = look_for_head(run.position, from, root, deadline - Clock::now());
    if (!endpoint) {
      return head_gone(run, root);
    }
    from = run.position.generation_of(endpoint->start).value_or(from) + 1;
    end = NodeGeneration(run, root).run(
        *endpoint, std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
    if (!end) {
      return head_gone(run, root);
    }
  }
  if (!end) {
    if (const auto record = exit_record_of_head(run, root)) {
      return *record;
    }
    log_error(end.error().message);
    return end.error().exit_code();
  }
  return end->exit_code;
}

}  // namespace train::actors
