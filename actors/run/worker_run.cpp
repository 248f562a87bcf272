#include "actors/run/worker_run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "actors/exit_codes.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/worker_messages.hpp"
#include "actors/net/cluster_actor.hpp"
#include "actors/net/credentials.hpp"
#include "actors/net/head_door.hpp"
#include "actors/net/rendezvous.hpp"
#include "actors/net/system_config.hpp"
#include "actors/net/worker_process.hpp"
#include "actors/profile/run_profile.hpp"
#include "actors/run/node_run.hpp"
#include "actors/run/rank_setup.hpp"
#include "actors/run/respawns.hpp"
#include "actors/run/signal_watcher.hpp"
#include "actors/supervision.hpp"
#include "configs/field_table.hpp"
#include "engine/base/log.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kOrderlyEnd = 10s;  // of workers that were told to go
constexpr auto kEndAfterFailure = 200ms;
constexpr auto kEndAfterLoss = 600ms;  // a large process takes its time to die
constexpr auto kNodesIdle = 15s;       // of other nodes' ranks, from the end of a generation

Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                           const caf::actor& rendezvous) {
  const configs::RunConfig& config = run.config();
  return {.generation = run.generation,
          .config_text = configs::to_toml(config),
          .checkpoint = run.checkpoint ? fs::absolute(run.checkpoint->path).string() : "",
          .memory_step = run.memory.start() ? run.memory.start()->step : -1,
          .run_directory = fs::absolute(run.directory.root).string(),
          .two_places = run.home->places().two(),
          .checkpoint_tag = run.home->tag(),
          .trace_directory =
              run.profile ? fs::absolute(profile_directory(run.directory.root)).string() : "",
          .threads = threads_per_rank(config.runtime.threads,
                                      config.parallel.ranks / config.parallel.nodes),
          .conductor = caf::actor_cast<caf::strong_actor_ptr>(head.conductor),
          .index = caf::actor_cast<caf::strong_actor_ptr>(head.index),
          .rendezvous = caf::actor_cast<caf::strong_actor_ptr>(rendezvous),
          .observer = caf::actor_cast<caf::strong_actor_ptr>(head.observer)};
}

/// Where the head listens.
Result<HeadDoor::Options> door_options(const configs::ParallelSection& parallel) {
  auto address = interface_address(parallel.interface);
  if (!address) {
    return address.error();
  }
  return HeadDoor::Options{.address = std::move(address).value(),
                           .port = static_cast<std::uint16_t>(parallel.port)};
}

/// The first worker of this node that a signal ended. The others may say sooner that they have lost
/// it than the kernel says how: a large process takes its time to die.
class FirstLoss {
 public:
  /// On the watcher's thread.
  void hear(const WorkerEnd& end) {
    const std::lock_guard lock(mutex_);
    if (end.unasked && !end_) {
      end_ = end;
    }
  }
  /// `outcome`, with the cause in place of what followed from it.
  [[nodiscard]] RunFinished cause_of(RunFinished outcome) const {
    const std::lock_guard lock(mutex_);
    if (outcome.rank_lost && end_) {
      outcome.text = fmt::format("rank {} failed: its process ended: {}", end_->rank, end_->text);
      outcome.rank_lost = end_->killed;
    }
    return outcome;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<WorkerEnd> end_;
};

/// The head of a run in processes, from its door to the end of its workers.
class Head {
 public:
  Head(const PreparedRun& run, std::shared_ptr<RunReport> report)
      : run_(run),
        parts_(head_parts(run, std::move(report), make_disk_stream())),
        system_(config_),
        self_(system_),
        actors_(start_head(system_, parts_)),
        rendezvous_(spawn_rendezvous(system_)) {
    cluster_ = spawn_cluster(system_, {.ranks = run.config().parallel.ranks,
                                       .version = ACTORTRAIN_VERSION,
                                       .plan_digest = run.plan.plan_digest,
                                       .kernel_set = engine::kernel_set_name(),
                                       .assignment = make_assignment(run, actors_, rendezvous_),
                                       .waiter = caf::actor_cast<caf::actor>(self_)});
  }
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;
  ~Head() {
    stop_actors(actors_.all);
    caf::anon_send_exit(cluster_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(rendezvous_, caf::exit_reason::user_shutdown);
    parts_.disk.reset();  // what it still does speaks to actors: done before their system ends
  }

  Result<RunFinished> run();

 private:
  Result<std::unique_ptr<HeadDoor>> open_door();
  std::variant<ClusterReady, RunFinished, Error> wait_for_ranks();
  RunFinished wait_for_end();
  void node_joined(const caf::strong_actor_ptr& sender);
  bool node_lost(const caf::down_msg& down);
  [[nodiscard]] bool end_nodes(bool again);
  [[nodiscard]] RunFinished with_nodes_ended(RunFinished outcome);
  void send_away(const std::vector<caf::strong_actor_ptr>& processes, int exit_code);

  const PreparedRun& run_;
  ControlConfig config_;
  HeadParts parts_;  // before the system: actors keep lines of its wait board
  caf::actor_system system_;
  caf::scoped_actor self_;
  HeadActors actors_;
  caf::actor rendezvous_, cluster_;
  std::map<caf::actor_addr, caf::actor> launchers_;  // of the other nodes, as far as they are there
  bool launcher_lost_ = false;
  std::optional<StopRequested> stop_;  // came before the ranks were there
};

Result<std::unique_ptr<HeadDoor>> Head::open_door() {
  const fs::path& root = run_.directory.root;
  const auto credentials = make_credentials(control_directory(root));
  if (!credentials) {
    return credentials.error();
  }
  auto options = door_options(run_.config().parallel);
  if (!options) {
    return options.error();
  }
  options->endpoint_file = endpoint_file(root);
  options->start = run_.place.start_of(run_.generation);
  return HeadDoor::open(system_, cluster_, *credentials, *options);
}

void Head::node_joined(const caf::strong_actor_ptr& sender) {
  const auto launcher = caf::actor_cast<caf::actor>(sender);
  self_->monitor(launcher);
  launchers_.emplace(launcher.address(), launcher);
}

/// False: it was no launcher.
bool Head::node_lost(const caf::down_msg& down) {
  const bool launcher = launchers_.erase(down.source) > 0;
  launcher_lost_ = launcher_lost_ || launcher;
  return launcher;
}

/// All ranks; or how the run ended before they were there.
std::variant<ClusterReady, RunFinished, Error> Head::wait_for_ranks() {
  std::optional<std::variant<ClusterReady, RunFinished, Error>> result;
  const auto failed = [&](const ClusterFailed& message) {
    if (message.rank_lost) {
      result = RunFinished{run_.first_step(), message.exit_code, message.text, true};
    } else {
      result =
          message.exit_code == kExitUserError ? user_error(message.text) : failure(message.text);
    }
  };
  while (!result) {
    self_->receive([&](const ClusterReady& message) { result = message; }, failed,
                   [&](const StopRequested& message) {
                     stop_ = message;
                     if (run_.memory.start()) {
                       return;  // no checkpoint may have what is in memory: it is saved first
                     }
                     result = RunFinished{
                         run_.first_step(), kExitStopped,
                         fmt::format("stopped by signal {} before the first step", message.signal)};
                   },
                   [&](const NodeJoined&, const caf::strong_actor_ptr& node) { node_joined(node); },
                   [&](const caf::down_msg& down) {
                     if (node_lost(down)) {  // its ranks may not have come yet, and never will
                       failed({"the launcher of another node is gone", kExitFailure, true});
                     }
                   });
  }
  return *result;
}

RunFinished Head::wait_for_end() {
  std::optional<RunFinished> outcome;
  self_->monitor(actors_.conductor);
  while (!outcome) {
    self_->receive(
        [&](const RunFinished& finished) { outcome = finished; },
        [&](const StopRequested& message) { caf::anon_send(actors_.conductor, message); },
        [&](const NodeJoined&, const caf::strong_actor_ptr& node) { node_joined(node); },
        [&](const caf::down_msg& down) {
          if (!node_lost(down)) {  // the conductor
            outcome = {run_.first_step(), kExitFailure, failure_text(down.reason)};
          }
        });
  }
  return *outcome;
}

/// Tells the other nodes what follows. With `again` it waits until none of their ranks runs; false:
/// a node is missing, and all have been told to end.
bool Head::end_nodes(bool again) {
  const auto tell = [this](bool goes_on) {
    for (const auto& [address, launcher] : launchers_) {
      self_->send(launcher, GenerationOver{goes_on});
    }
  };
  tell(again);
  const auto deadline = std::chrono::steady_clock::now() + kNodesIdle;
  const std::int64_t all = run_.place.nodes - 1;
  std::int64_t idle = 0;
  while (again && idle < all && !launcher_lost_ && std::chrono::steady_clock::now() < deadline) {
    self_->receive([&](const NodeIdle&) { ++idle; },
                   [&](const NodeJoined&, const caf::strong_actor_ptr& node) {  // it comes late
                     node_joined(node);
                     self_->send(caf::actor_cast<caf::actor>(node), GenerationOver{true});
                   },
                   [&](const caf::down_msg& down) { node_lost(down); }, caf::after(100ms) >> [] {});
  }
  if (again && idle < all) {
    tell(false);
    return false;
  }
  return true;
}

void Head::send_away(const std::vector<caf::strong_actor_ptr>& processes, int exit_code) {
  for (const caf::strong_actor_ptr& process : processes) {
    caf::anon_send(caf::actor_cast<caf::actor>(process), GoAway{"the run is over", exit_code});
  }
}

Result<RunFinished> Head::run() {
  const auto door = open_door();
  if (!door) {
    return door.error();
  }
  // Before the first worker: the end of one is news whenever it comes.
  std::atomic<bool> over{false};
  FirstLoss first_loss;
  WorkerProcesses workers([this, &over, &first_loss](const WorkerEnd& end) {
    first_loss.hear(end);
    if (!over) {
      caf::anon_send(cluster_, WorkerExited{end.rank, static_cast<std::int32_t>(end.pid), end.text,
                                            end.killed});
    }
  });
  const SignalWatcher signals([me = caf::actor_cast<caf::actor>(self_)](int signal) {
    caf::anon_send(me, StopRequested{signal});
  });
  start_workers(workers, run_.place, run_.config().parallel.ranks, (*door)->endpoint(),
                run_.directory.root, run_.memory);
  const auto start = wait_for_ranks();
  const auto* const ready = std::get_if<ClusterReady>(&start);
  if (ready == nullptr) {
    over = true;
    workers.terminate_all(0ms);
    if (const auto* const error = std::get_if<Error>(&start)) {
      std::ignore = end_nodes(false);
      return *error;
    }
    return with_nodes_ended(std::get<RunFinished>(start));
  }
  std::vector<RankActor> ranks;
  for (const caf::strong_actor_ptr& rank : ready->ranks) {
    ranks.push_back(caf::actor_cast<RankActor>(rank));
  }
  connect_head(actors_, ranks, caf::actor_cast<caf::actor>(self_));
  if (stop_) {
    caf::anon_send(actors_.conductor, *stop_);
  }
  RunFinished outcome = wait_for_end();
  over = true;
  const bool orderly = outcome.exit_code == kExitFinished || outcome.exit_code == kExitStopped;
  send_away(ready->processes, orderly ? kExitFinished : kExitFailure);
  // Ranks that have a profile to write get the time for it also after a failure.
  const auto time = orderly || run_.profile ? std::chrono::milliseconds(kOrderlyEnd)
                    : outcome.rank_lost     ? std::chrono::milliseconds(kEndAfterLoss)
                                            : std::chrono::milliseconds(kEndAfterFailure);
  if (const std::size_t killed = workers.terminate_all(time); killed > 0 && orderly) {
    log_warning(fmt::format("workers_killed {} did not end by themselves", killed));
  }
  return with_nodes_ended(first_loss.cause_of(std::move(outcome)));
}

RunFinished Head::with_nodes_ended(RunFinished outcome) {
  const bool again = outcome.rank_lost && can_respawn(run_.config());
  if (!end_nodes(again)) {
    outcome.rank_lost = false;
    outcome.exit_code = kExitStopped;
    outcome.text +=
        "; the launcher of another node is gone, too: run it again to go on from the newest "
        "checkpoint";
    log_error(outcome.text);
  }
  return outcome;
}

}  // namespace

Status check_network(const configs::ParallelSection& parallel) {
  const auto options = door_options(parallel);
  return options ? HeadDoor::check(*options) : Status(options.error());
}

Result<RunFinished> run_in_processes(const PreparedRun& run, std::shared_ptr<RunReport> report) {
  return Head(run, std::move(report)).run();
}

}  // namespace train::actors
