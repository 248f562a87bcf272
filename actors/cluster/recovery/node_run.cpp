#include "actors/cluster/recovery/node_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/system/actor_systems.hpp"
#include "base/exit_codes.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "run/directory/run_directory.hpp"
#include "run/directory/run_events.hpp"
#include "run/recovery/node_table.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kHeadConnectTime = 30s;  // After its first announced address.
constexpr auto kHeadTryTime = 3s;       // For an address that may be outdated.
constexpr auto kBetweenRetries = 100ms;
constexpr auto kEndWithoutHead = 3s;                // For ranks without a head.
constexpr auto kEndOfGeneration = 200ms;            // For ranks of a finished generation.
constexpr std::chrono::seconds kVerdictTime = 10s;  // From the end of all ranks to the head's
                                                    // message.
constexpr std::chrono::seconds kBetweenLooksAtMemory = 1s;  // Interval of checks of the ranks'
                                                            // snapshots.
constexpr auto kHeadNoticesLater = 10s;  // The head notices a lost node this much later than a node
                                         // notices a lost head.

/// Life of a node's launcher across generations, driven by the table.
struct NodeLife {
  run::RunPlan plan;
  run::NodePosition position;  ///< Among the nodes that take part.
  std::int64_t node;           ///< Original number of the node.
  fs::path root = run::run_root(plan.config);
  run::NodeMemory memory = {};  ///< Snapshots of its ranks, and of those of the previous node.
  run::NodeState state = run::NodeState::first_look;
  int exit_code = kExitFailure;  ///< As reported so far.
  std::uint32_t from = 0;        ///< Next generation to look for.

  /// Runs until the run is over; returns the exit code.
  int live();
  /// Takes part in the next generation, or the first that this launcher sees, not always the run's
  /// first, as it may have been restarted. Errors: the head was not found in time.
  Status join(bool first, std::chrono::seconds wait);
  /// Address of the head of generation `first`, or a later one.
  [[nodiscard]] Result<Endpoint> look(std::uint32_t first, Clock::duration time) const;
  /// True if the head has ended, or this launcher is to end.
  [[nodiscard]] bool in_vain() const {
    return stop_signal() != 0 || exit_record(root, position.start);
  }
  /// Applies the event, and logs its line. `told`: exit code that came with it.
  run::NodeStep hear(run::NodeEvent event, run::NodeFacts facts, int told,
                     run::LineWords words = {});
};

/// One generation of this node's ranks, from its registration with the head.
class NodeGeneration {
 public:
  explicit NodeGeneration(NodeLife& life)
      : life_(life), system_(make_actor_system(config_)), self_(*system_) {}

  /// `patience`: for the head's listener. Errors: it cannot be reached.
  Status run(const Endpoint& endpoint, std::chrono::milliseconds patience) {
    const auto credentials = TRAIN_TRY(load_credentials(control_directory(life_.root)));
    head_ = TRAIN_TRY(connect_to_head(*system_, credentials, endpoint, patience));
    self_->monitor(head_);
    link_ = BuddyLink::open(config_.loop(), credentials, life_.plan);
    WorkerProcesses workers(
        config_.loop(), [&, me = caf::actor_cast<caf::actor>(self_)](const run::WorkerEnd& end) {
          const WorkerExited exited{end.rank, end.text, end.killed};
          if (!end.clean) {
            clean_ = false;
            caf::anon_send(head_, exited);
          }
          caf::anon_send(me, exited);
        });
    workers_ = &workers;
    endpoint_ = endpoint;
    tell(run::NodeEvent::head_found);
    while (life_.state != run::NodeState::looking && life_.state != run::NodeState::over) {
      receive();
    }
    return {};
  }

 private:
  /// Carries out the table's actions.
  run::NodeStep tell(run::NodeEvent event, std::optional<int> told = {}) {
    const auto facts = run::NodeFacts().set(run::NodeFact::in_order, started_ && clean_);
    const run::NodeStep step = life_.hear(event, facts, told.value_or(life_.exit_code));
    if (step.has(run::NodeAction::introduce)) {
      self_->send(head_, NodeJoined{.node = static_cast<std::int32_t>(life_.node),
                                    .held = life_.memory.held(),
                                    .snapshots = link_ ? link_->address() : ""});
    }
    if (step.has(run::NodeAction::start_ranks)) {
      start_ranks();
    }
    if (step.has(run::NodeAction::end_ranks)) {
      // In an orderly end the head ends last; ranks that had joined it notice that it is gone.
      workers_->terminate_all(life_.state == run::NodeState::ending_again ? kEndOfGeneration
                                                                          : kEndWithoutHead);
      tell(run::NodeEvent::ranks_gone);
    }
    if (step.has(run::NodeAction::idle)) {
      self_->send(head_, NodeIdle{static_cast<std::int32_t>(life_.node)});
    }
    return step;
  }

  void receive() {
    const auto patience =
        life_.state == run::NodeState::unclear ? kVerdictTime : kBetweenLooksAtMemory;
    self_->receive(
        [&](const StartRanks& order) {
          order_ = order;
          tell(run::NodeEvent::start);
        },
        [&](const TakePosition& order) {
          if (tell(run::NodeEvent::position).has(run::NodeAction::take_position)) {
            answer(take_position(order));
          }
        },
        [&](const RestoreMemory& order) {
          if (tell(run::NodeEvent::restore).has(run::NodeAction::restore)) {
            answer(link_ ? link_->restore(order, life_.memory) : failure("it is nobody's buddy"));
          }
        },
        [&](const GenerationOver& over) {
          tell(over.without ? run::NodeEvent::without
               : over.again ? run::NodeEvent::again
                            : run::NodeEvent::end,
               over.exit_code);
        },
        [&](const WorkerExited&) {
          if (--left_ == 0) {
            tell(run::NodeEvent::ranks_ended);
          }
        },
        [&](const caf::down_msg&) { tell(run::NodeEvent::head_lost); },
        caf::after(patience) >>
            [&] {
              if (life_.state == run::NodeState::unclear) {
                tell(run::NodeEvent::word_time_over);
              } else if (started_) {
                life_.memory.finalize();
              }
            });
  }

  void start_ranks() {
    const std::int64_t step = order_.memory_step;
    if (step < 0 || !new_position_) {
      life_.memory.resume_from(step >= 0 ? std::optional(step) : std::nullopt, order_.earlier);
    }
    if (link_) {
      link_->keep(order_.buddy, life_.memory);
    }
    const std::int64_t ranks = life_.plan.config.parallel.ranks;
    start_workers(*workers_, life_.position, ranks, endpoint_, life_.root, life_.memory);
    const auto [first, end] = life_.position.ranks(ranks);
    left_ = end - first;
    started_ = true;
  }

  Status take_position(const TakePosition& order) {
    life_.plan = TRAIN_TRY(run::plan_with(life_.plan, order.nodes, order.ranks));
    life_.position.node = order.node;
    life_.position.nodes = order.nodes;
    new_position_ = order.memory_step >= 0;
    if (new_position_) {
      life_.memory.resume_from(order.memory_step, order.earlier);
    }
    return life_.memory.make_room(life_.plan, life_.position, new_position_);
  }

  void answer(const Status& done) {
    self_->send(head_, MemoryRestored{static_cast<std::int32_t>(life_.node),
                                      done ? std::string() : done.error().message});
  }

  NodeLife& life_;
  ControlConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scoped_actor self_;
  caf::actor head_;
  Endpoint endpoint_;
  StartRanks order_;  // The last one.
  WorkerProcesses* workers_ = nullptr;
  std::unique_ptr<BuddyLink> link_;
  std::atomic<bool> clean_{true};  // Every rank has ended in order.
  bool started_ = false;
  bool new_position_ = false;  // The ranks resume from the snapshots of another position.
  std::int64_t left_ = 0;      // Number of ranks that have not ended.
};

/// Time of the run status's last change, as the head updates it regularly. The minimum: never.
fs::file_time_type status_time(const fs::path& root) {
  std::error_code error;
  return fs::last_write_time(root / "status.json", error);
}

run::NodeStep NodeLife::hear(run::NodeEvent event, run::NodeFacts facts, int told,
                             run::LineWords words) {
  facts.set(run::NodeFact::respawn, run::can_respawn(plan));
  facts.set(run::NodeFact::signalled, stop_signal() != 0);
  words.node = node;
  words.signal = stop_signal();
  const run::NodeStep step = decide(state, event, facts);
  state = step.next;
  if (step.exit != run::Exit::none) {
    exit_code = run::exit_code_of(step.exit, told);
  }
  if (const std::string line = fill_in(step.line, words); !line.empty()) {
    const bool asked = event == run::NodeEvent::head_not_found &&
                       facts.has_any({run::NodeFact::recorded, run::NodeFact::signalled});
    const auto say = asked ? log_info : step.exit == run::Exit::finished ? log_warning : log_error;
    say(line);
  }
  return step;
}

int NodeLife::live() {
  const configs::RecoverySection& recovery = plan.config.recovery;
  while (state != run::NodeState::over) {
    const bool first = state == run::NodeState::first_look;
    const auto seconds = first ? recovery.start_wait_s : recovery.node_wait_s;
    const auto before = status_time(root);
    if (const Status joined = join(first, std::chrono::seconds(seconds)); !joined) {
      const auto record = exit_record(root, position.start);
      // Without an address the status belongs to a head of another start.
      const bool alive = status_time(root) != before && look(0, 0s).ok();
      const auto facts = run::NodeFacts()
                             .set(run::NodeFact::recorded, record.has_value())
                             .set(run::NodeFact::alive, alive);
      const run::NodeStep step =
          hear(run::NodeEvent::head_not_found, facts, record.value_or(joined.error().exit_code()),
               {.seconds = seconds,
                .text = record ? fmt::format("{}", *record) : joined.error().message});
      if (step.has(run::NodeAction::look_again)) {
        run::note_event(root, {.kind = "node_waiting",
                               .text = fmt::format("node {} reaches no head, and the run goes on: "
                                                   "it looks for it again",
                                                   node)});
      }
    }
  }
  return exit_code;
}

Result<Endpoint> NodeLife::look(std::uint32_t first, Clock::duration time) const {
  return find_head(position, first, endpoint_file(root),
                   std::chrono::ceil<std::chrono::milliseconds>(time),
                   [this] { return in_vain(); });
}

Status NodeLife::join(bool first, std::chrono::seconds wait) {
  const auto begun = Clock::now();
  const auto deadline = begun + wait + (first ? 0s : kHeadNoticesLater);
  auto last_try = deadline;
  for (;;) {
    const auto endpoint = look(from, deadline - Clock::now());
    if (!endpoint) {
      return failure(endpoint.error().message +
                     (first ? fmt::format(" (recovery.start_wait_s = {})", wait.count()) : ""));
    }
    if (std::exchange(first, false)) {  // It may be slow, or its head is gone.
      last_try = Clock::now() + kHeadConnectTime;
    }
    NodeGeneration generation(*this);
    Status joined = beside_actors([&] { return generation.run(*endpoint, kHeadTryTime); });
    if (joined) {  // Otherwise the generation may become reachable later, or this one is ending.
      from = endpoint->generation + 1;
    }
    const bool mistaken = !joined && joined.error().exit_code() == kExitUserError;
    if (joined || mistaken || Clock::now() >= last_try || in_vain()) {
      return joined;
    }
    std::this_thread::sleep_for(kBetweenRetries);
  }
}

}  // namespace

void start_workers(WorkerProcesses& workers, const run::NodePosition& position, std::int64_t ranks,
                   const Endpoint& endpoint, const fs::path& root, const run::NodeMemory& memory) {
  const auto [first, end] = position.ranks(ranks);
  for (std::int64_t rank = first; rank < end; ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    auto words =
        worker_words(number, to_string(endpoint), fs::absolute(control_directory(root)).string());
    std::vector<int> inherited;
    const auto hand_over = [&](const char* option, const run::SharedSnapshots& snapshots) {
      if (snapshots) {
        inherited.push_back(snapshots->descriptor());
        words.insert(words.end(), {option, fmt::format("{}", snapshots->descriptor())});
      }
    };
    hand_over("--memory", memory.current());
    const std::vector<run::SharedSnapshots>& before = memory.before();
    hand_over("--memory-before", before.empty() ? nullptr : before.front());
    hand_over("--memory-buddy-before", before.size() < 2 ? nullptr : before.back());
    workers.start(number, std::move(words), std::move(inherited));
  }
}

int run_node(run::RunPlan plan, const run::NodePosition& position) {
  const SignalListener signals([](int) {});  // The head receives it too, and decides for all.
  NodeLife life{.plan = std::move(plan), .position = position, .node = position.node};
  if (const Status room = life.memory.make_room(life.plan, position); !room) {
    log_error(fmt::format("node {}: {}", life.node, room.error().message));
    return room.error().exit_code();
  }
  return life.live();
}

}  // namespace train::actors
