#include "actors/run/worker_run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <optional>
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
#include "actors/run/rank_setup.hpp"
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
constexpr auto kEndWithoutHead = 3s;  // of ranks on another node

fs::path control_directory(const fs::path& root) { return root / "control"; }
fs::path endpoint_file(const fs::path& root) { return control_directory(root) / "endpoint"; }

Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                           const caf::actor& rendezvous) {
  const configs::RunConfig& config = run.config();
  return {.generation = run.generation,
          .config_text = configs::to_toml(config),
          .checkpoint = run.checkpoint ? fs::absolute(run.checkpoint->path).string() : "",
          .run_directory = fs::absolute(run.directory.root).string(),
          .two_places = run.home->places().two(),
          .checkpoint_tag = run.home->tag(),
          .trace_directory =
              run.profile ? fs::absolute(profile_directory(run.directory.root)).string() : "",
          .threads = threads_per_rank(config.runtime.threads,
                                      config.parallel.ranks / config.parallel.nodes),
          .conductor = caf::actor_cast<caf::strong_actor_ptr>(head.conductor),
          .index = caf::actor_cast<caf::strong_actor_ptr>(head.index),
          .rendezvous = caf::actor_cast<caf::strong_actor_ptr>(rendezvous)};
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

void start_workers(WorkerProcesses& workers, const NodePlace& place, std::int64_t ranks,
                   const Endpoint& endpoint, const fs::path& root) {
  const auto [first, end] = place.ranks(ranks);
  for (std::int64_t rank = first; rank < end; ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    workers.start(number, worker_words(number, to_string(endpoint),
                                       fs::absolute(control_directory(root)).string()));
  }
}

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
  void send_away(const std::vector<caf::strong_actor_ptr>& processes, int exit_code);

  const PreparedRun& run_;
  ControlConfig config_;
  HeadParts parts_;  // before the system: actors keep lines of its wait board
  caf::actor_system system_;
  caf::scoped_actor self_;
  HeadActors actors_;
  caf::actor rendezvous_, cluster_;
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
  options->start = run_.place.start;
  return HeadDoor::open(system_, cluster_, *credentials, *options);
}

/// All ranks; or how the run ended before they were there.
std::variant<ClusterReady, RunFinished, Error> Head::wait_for_ranks() {
  std::variant<ClusterReady, RunFinished, Error> result;
  self_->receive([&](const ClusterReady& message) { result = message; },
                 [&](const ClusterFailed& message) {
                   if (message.rank_lost) {
                     result = RunFinished{run_.first_step(), message.exit_code, message.text, true};
                   } else {
                     result = message.exit_code == kExitUserError ? user_error(message.text)
                                                                  : failure(message.text);
                   }
                 },
                 [&](const StopRequested& message) {
                   result = RunFinished{
                       run_.first_step(), kExitStopped,
                       fmt::format("stopped by signal {} before the first step", message.signal)};
                 });
  return result;
}

RunFinished Head::wait_for_end() {
  std::optional<RunFinished> outcome;
  self_->monitor(actors_.conductor);
  while (!outcome) {
    self_->receive(
        [&](const RunFinished& finished) { outcome = finished; },
        [&](const StopRequested& message) { caf::anon_send(actors_.conductor, message); },
        [&](const caf::down_msg& down) {
          outcome = {run_.first_step(), kExitFailure, failure_text(down.reason)};
        });
  }
  return *outcome;
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
  WorkerProcesses workers([this, &over](const WorkerEnd& end) {
    if (!over) {
      caf::anon_send(cluster_, WorkerExited{end.rank, static_cast<std::int32_t>(end.pid), end.text,
                                            end.killed});
    }
  });
  const SignalWatcher signals([me = caf::actor_cast<caf::actor>(self_)](int signal) {
    caf::anon_send(me, StopRequested{signal});
  });
  start_workers(workers, run_.place, run_.config().parallel.ranks, (*door)->endpoint(),
                run_.directory.root);
  const auto start = wait_for_ranks();
  const auto* const ready = std::get_if<ClusterReady>(&start);
  if (ready == nullptr) {
    over = true;
    workers.terminate_all(0ms);
    const auto* const error = std::get_if<Error>(&start);
    return error != nullptr ? Result<RunFinished>(*error) : std::get<RunFinished>(start);
  }
  std::vector<RankActor> ranks;
  for (const caf::strong_actor_ptr& rank : ready->ranks) {
    ranks.push_back(caf::actor_cast<RankActor>(rank));
  }
  connect_head(actors_, ranks, caf::actor_cast<caf::actor>(self_));
  RunFinished outcome = wait_for_end();
  over = true;
  const bool orderly = outcome.exit_code == kExitFinished || outcome.exit_code == kExitStopped;
  send_away(ready->processes, orderly ? kExitFinished : kExitFailure);
  // Ranks that have a profile to write get the time for it also after a failure.
  const auto time = orderly || run_.profile ? std::chrono::milliseconds(kOrderlyEnd)
                                            : std::chrono::milliseconds(kEndAfterFailure);
  if (const std::size_t killed = workers.terminate_all(time); killed > 0 && orderly) {
    log_warning(fmt::format("workers_killed {} did not end by themselves", killed));
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

int run_node(const RunPlan& plan, const NodePlace& place) {
  const fs::path root = fs::path(plan.config.run.dir) / plan.config.run.name;
  const auto endpoint = find_head(place, endpoint_file(root));
  const auto credentials = endpoint ? load_credentials(control_directory(root))
                                    : Result<CredentialFiles>(endpoint.error());
  if (!credentials) {
    log_error(credentials.error().message);
    return credentials.error().exit_code();
  }
  ControlConfig config;
  caf::actor_system system(config);
  const auto head = knock(system, *credentials, *endpoint, 30s);
  if (!head) {
    log_error(head.error().message);
    return head.error().exit_code();
  }
  caf::scoped_actor self(system);
  self->monitor(*head);
  std::atomic<bool> clean{true};
  WorkerProcesses workers([&, me = caf::actor_cast<caf::actor>(self)](const WorkerEnd& end) {
    const WorkerExited exited{end.rank, static_cast<std::int32_t>(end.pid), end.text, end.killed};
    if (!end.clean) {
      clean = false;
      caf::anon_send(*head, exited);
    }
    caf::anon_send(me, exited);
  });
  const SignalWatcher signals([](int) {});  // the head hears it too, and decides for all
  start_workers(workers, place, plan.config.parallel.ranks, *endpoint, root);
  const auto [first, end] = place.ranks(plan.config.parallel.ranks);
  bool alone = false;
  for (std::int64_t left = end - first; left > 0 && !alone;) {
    self->receive([&](const WorkerExited&) { --left; },
                  [&](const caf::down_msg&) { alone = true; });
  }
  // The head goes last when all is well; ranks that had joined it know that it is gone.
  if (workers.terminate_all(kEndWithoutHead) > 0) {
    log_error(fmt::format("node {}: the head is gone", place.node));
  }
  return clean ? kExitFinished : kExitFailure;
}

}  // namespace train::actors
