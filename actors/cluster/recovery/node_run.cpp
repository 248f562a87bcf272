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
#include "actors/cluster/recovery/node_table.hpp"
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

/// What the table has led to, and what was said of it.
struct NodeCourse {
  NodeState state = NodeState::first_look;
  int exit_code = kExitFailure;
};

/// One generation of this node's ranks, from its connect_to_head at the head's listener.
class NodeGeneration {
 public:
  NodeGeneration(NodeRun& run, fs::path root, NodeCourse& course)
      : run_(run), root_(std::move(root)), course_(course), system_(config_), self_(system_) {}

  /// `patience`: for the head's listener. Errors: it stays shut.
  Status run(const Endpoint& endpoint, std::chrono::milliseconds patience) {
    const auto credentials = load_credentials(control_directory(root_));
    TRAIN_RETURN_IF_ERROR(credentials);
    const auto head = connect_to_head(system_, *credentials, endpoint, patience);
    TRAIN_RETURN_IF_ERROR(head);
    head_ = *head;
    self_->monitor(head_);
    link_ = BuddyLink::open(config_.loop(), *credentials, run_.plan);
    WorkerProcesses workers(config_.loop(),
                            [&, me = caf::actor_cast<caf::actor>(self_)](const WorkerEnd& end) {
                              const WorkerExited exited{end.rank, end.text, end.killed};
                              if (!end.clean) {
                                clean_ = false;
                                caf::anon_send(head_, exited);
                              }
                              caf::anon_send(me, exited);
                            });
    workers_ = &workers;
    endpoint_ = endpoint;
    tell(NodeEvent::head_found);
    while (under_way()) {
      receive();
    }
    return {};
  }

 private:
  [[nodiscard]] bool under_way() const {
    return course_.state != NodeState::looking && course_.state != NodeState::over;
  }

  /// Carries out what the table says. `told`: the exit code that came with the event.
  NodeStep tell(NodeEvent event, int told = kExitFailure) {
    NodeFacts facts;
    facts.set(NodeFact::respawn, can_respawn(run_.plan));
    facts.set(NodeFact::in_order, started_ && clean_);
    const NodeStep step = decide(course_.state, event, facts);
    course_.state = step.next;
    if (step.has(NodeAction::introduce)) {
      self_->send(head_, introduction());
    }
    if (step.has(NodeAction::start_ranks)) {
      start_ranks();
    }
    if (step.exit == Exit::as_told && event == NodeEvent::ranks_gone) {
      told = course_.exit_code;  // the head has said it before
    }
    if (step.exit != Exit::none) {
      course_.exit_code = exit_code_of(step.exit, told);
    }
    const std::string line = fill_in(step.line, {.node = run_.node});
    if (!line.empty() && course_.exit_code == kExitFinished) {
      log_warning(line);
    } else if (!line.empty()) {
      log_error(line);
    }
    if (step.has(NodeAction::end_ranks)) {
      // The head goes last when all is well; ranks that had joined it know that it is gone.
      workers_->terminate_all(course_.state == NodeState::ending_again ? kEndAfterFailure
                                                                       : kEndWithoutHead);
      tell(NodeEvent::ranks_gone);
    }
    if (step.has(NodeAction::idle)) {
      self_->send(head_, NodeIdle{static_cast<std::int32_t>(run_.node)});
    }
    return step;
  }

  void receive() {
    const auto patience = course_.state == NodeState::unclear
                              ? std::chrono::milliseconds(kVerdictTime)
                              : std::chrono::milliseconds(kBetweenLooks);
    self_->receive(
        [&](const StartRanks& order) {
          order_ = order;
          tell(NodeEvent::start);
        },
        [&](const TakePosition& order) {
          if (tell(NodeEvent::position).has(NodeAction::take_position)) {
            answer(take_position(order));
          }
        },
        [&](const RestoreMemory& order) {
          if (tell(NodeEvent::restore).has(NodeAction::restore)) {
            answer(link_ ? link_->restore(order, run_.memory) : failure("it is nobody's buddy"));
          }
        },
        [&](const GenerationOver& over) {
          tell(over.without ? NodeEvent::without
               : over.again ? NodeEvent::again
                            : NodeEvent::end,
               over.exit_code);
        },
        [&](const WorkerExited&) {
          if (--left_ == 0) {
            tell(NodeEvent::ranks_ended);
          }
        },
        [&](const caf::down_msg&) { tell(NodeEvent::head_lost); },
        caf::after(patience) >>
            [&] {
              if (course_.state == NodeState::unclear) {
                tell(NodeEvent::word_time_over);
              } else if (started_) {
                run_.memory.finalize();
              }
            });
  }

  void start_ranks() {
    const std::int64_t step = order_.memory_step;
    if (step < 0 || !new_position_) {
      run_.memory.resume_from(step >= 0 ? std::optional(step) : std::nullopt, order_.earlier);
    }
    if (link_) {
      link_->keep(order_.buddy, run_.memory);
    }
    const std::int64_t ranks = run_.plan.config.parallel.ranks;
    start_workers(*workers_, run_.position, ranks, endpoint_, root_, run_.memory);
    const auto [first, end] = run_.position.ranks(ranks);
    left_ = end - first;
    started_ = true;
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

  NodeRun& run_;
  fs::path root_;
  NodeCourse& course_;
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor head_;
  Endpoint endpoint_;
  StartRanks order_;  // the last
  WorkerProcesses* workers_ = nullptr;
  std::unique_ptr<BuddyLink> link_;
  std::atomic<bool> clean_{true};  // no rank has ended in disorder
  bool started_ = false;
  bool new_position_ = false;  // the ranks resume from those of the position before
  std::int64_t left_ = 0;      // ranks that have not ended
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

/// When the run's status last changed: its head writes it all the time.
fs::file_time_type status_time(const fs::path& root) {
  std::error_code error;
  const auto time = fs::last_write_time(root / "status.json", error);
  return error ? fs::file_time_type::min() : time;
}

/// Of a launcher's whole life, generation after generation.
class NodeLife {
 public:
  NodeLife(NodeRun& run, fs::path root) : run_(run), root_(std::move(root)) {}

  int live() {
    const configs::RecoverySection& recovery = run_.plan.config.recovery;
    while (course_.state != NodeState::over) {
      const bool first = course_.state == NodeState::first_look;
      const auto before = status_time(root_);
      const auto seconds = first ? recovery.start_wait_s : recovery.node_wait_s;
      const Status met = meet(first, std::chrono::seconds(seconds));
      if (!met) {
        // Else the status is that of a head of another start.
        const bool alive = status_time(root_) != before &&
                           look_for_head(run_.position, 0, root_, Clock::duration::zero()).ok();
        not_found(met.error(), seconds, alive);
      }
    }
    return course_.exit_code;
  }

 private:
  /// The next generation, or the first that this launcher takes part in: not always that of the
  /// run, for it may have been started anew. What is found then may be of one at its end.
  Status meet(bool first, std::chrono::seconds wait) {
    const auto begun = Clock::now();
    const auto deadline = begun + wait + (first ? 0s : kHeadNoticesLater);
    for (;;) {
      const auto endpoint = look_for_head(run_.position, from_, root_, deadline - Clock::now());
      if (!endpoint) {
        return failure(endpoint.error().message +
                       (first ? fmt::format(" (recovery.start_wait_s = {})", wait.count()) : ""));
      }
      const Status met =
          NodeGeneration(run_, root_, course_)
              .run(*endpoint,
                   first ? std::chrono::milliseconds(kFirstRetry)
                         : std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
      if (met) {  // else the same generation may be in reach later
        from_ = run_.position.generation_of(endpoint->start).value_or(from_) + 1;
      }
      if (met || !first || Clock::now() >= begun + kHeadConnectTime || stop_signal() != 0 ||
          exit_record(root_, run_.position.start)) {
        return met;
      }
      std::this_thread::sleep_for(kBetweenRetries);
    }
  }

  void not_found(const Error& why, std::int64_t seconds, bool alive) {
    const auto record = exit_record(root_, run_.position.start);
    NodeFacts facts;
    facts.set(NodeFact::recorded, record.has_value());
    facts.set(NodeFact::signalled, stop_signal() != 0);
    facts.set(NodeFact::alive, alive);
    const NodeStep step = decide(course_.state, NodeEvent::head_not_found, facts);
    course_.state = step.next;
    if (step.exit == Exit::none) {
      return;
    }
    course_.exit_code = step.exit == Exit::failure ? static_cast<int>(why.exit_code())
                                                   : exit_code_of(step.exit, record.value_or(0));
    const std::string line =
        fill_in(step.line, {.node = run_.node,
                            .seconds = seconds,
                            .signal = stop_signal(),
                            .text = record ? fmt::format("{}", *record) : why.message});
    if (record || facts.has(NodeFact::signalled)) {
      log_info(line);
    } else {
      log_error(line);
    }
  }

  NodeRun& run_;
  fs::path root_;
  NodeCourse course_;
  std::uint32_t from_ = 0;  // the next generation to look for
};

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
  const SignalWatcher signals([](int) {});  // the head hears it too, and decides for all
  NodeRun run{.plan = std::move(plan), .position = position, .node = position.node};
  if (const Status room = run.memory.make_room(run.plan, position); !room) {
    log_error(fmt::format("node {}: {}", run.node, room.error().message));
    return room.error().exit_code();
  }
  return NodeLife(run, root).live();
}

}  // namespace train::actors
