#include "actors/cluster/recovery/process_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/worker_process.hpp"
#include "actors/cluster/recovery/head_network.hpp"
#include "actors/cluster/recovery/node_run.hpp"
#include "actors/cluster/recovery/verdict.hpp"
#include "actors/head/run_directory.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/supervision.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "configs/fields/field_table.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kOrderlyEnd = 10s;  // of workers that were told to go
constexpr auto kEndAfterFailure = 200ms;
constexpr auto kEndAfterLoss = 600ms;  // a large process takes its time to die
constexpr std::chrono::milliseconds kIdle = 1h;
constexpr auto kBetweenListens = 200ms;  // tries to open one
constexpr auto kBetweenLooks = 50ms;     // for a snapshot that nodes that are back wait for

Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                           const caf::actor& rendezvous) {
  const configs::RunConfig& config = run.config();
  const auto memory = run.memory.start();
  return {.generation = run.generation,
          .config_text = configs::to_toml(config),
          .checkpoint = run.checkpoint ? fs::absolute(run.checkpoint->path).string() : "",
          .memory = memory ? memory->origin : MemoryOrigin(),
          .phase_step = run.plan.engine.phase_step,
          .references_done = run.references_done,
          .run_directory = fs::absolute(run.directory.root).string(),
          .two_locations = run.store->locations().two(),
          .checkpoint_tag = run.store->tag(),
          .trace_directory =
              run.profile ? fs::absolute(profile_directory(run.directory.root)).string() : "",
          .threads = threads_per_rank(config.runtime.threads,
                                      config.parallel.ranks / config.parallel.nodes),
          .conductor = caf::actor_cast<caf::strong_actor_ptr>(head.conductor),
          .index = caf::actor_cast<caf::strong_actor_ptr>(head.index),
          .rendezvous = caf::actor_cast<caf::strong_actor_ptr>(rendezvous),
          .observer = caf::actor_cast<caf::strong_actor_ptr>(head.observer)};
}

}  // namespace

/// The head of one generation of ranks, from their start to their end.
class GenerationHead {
 public:
  GenerationHead(PreparedRun& run, std::shared_ptr<RunReport> report, HeadNetwork& network)
      : run_(run),
        parts_(head_parts(run, std::move(report), make_disk_stream())),
        network_(network),
        self_(network_.self()),
        actors_(start_head(network_.system(), parts_)),
        rendezvous_(spawn_rendezvous(network_.system())) {
    caf::anon_send(network_.cluster(),
                   OpenCluster{.assignment = make_assignment(run, actors_, rendezvous_),
                               .ranks = run.config().parallel.ranks,
                               .plan_digest = run.plan.plan_digest,
                               .data_fingerprint = run.plan.data_fingerprint});
  }
  GenerationHead(const GenerationHead&) = delete;
  GenerationHead& operator=(const GenerationHead&) = delete;
  ~GenerationHead() {
    stop_actors(actors_.all);
    caf::anon_send_exit(rendezvous_, caf::exit_reason::user_shutdown);
    parts_.disk.reset();  // what it still does speaks to actors: done before their system ends
  }

  RunFinished run() {
    // Before the first worker: the end of one is news whenever it comes.
    std::atomic<bool> over{false};
    FirstLoss first_loss;
    WorkerProcesses workers(
        loop_of(network_.system()), [this, &over, &first_loss](const WorkerEnd& end) {
          first_loss.hear(end);
          if (!over) {
            caf::anon_send(network_.cluster(), WorkerExited{end.rank, end.text, end.killed});
          }
        });
    const SignalWatcher signals([me = caf::actor_cast<caf::actor>(self_)](int signal) {
      caf::anon_send(me, StopRequested{signal});
    });
    network_.start_ranks();
    start_workers(workers, run_.position, run_.config().parallel.ranks, network_.endpoint(),
                  run_.directory.root, run_.memory);
    RunFinished outcome = wait_for_end();
    over = true;
    if (!ready_) {
      outcome.step = run_.first_step();
      workers.terminate_all(0ms);
      return first_loss.cause_of(std::move(outcome));
    }
    const bool orderly = outcome.exit_code == kExitFinished || outcome.exit_code == kExitStopped;
    for (const caf::strong_actor_ptr& process : ready_->processes) {
      caf::anon_send(caf::actor_cast<caf::actor>(process),
                     GoAway{orderly ? kExitFinished : kExitFailure});
    }
    // Ranks that have a profile to write get the time for it also after a failure.
    const auto time = orderly || run_.profile ? std::chrono::milliseconds(kOrderlyEnd)
                      : outcome.end != GenerationEnd::run_over
                          ? std::chrono::milliseconds(kEndAfterLoss)
                          : std::chrono::milliseconds(kEndAfterFailure);
    if (const std::size_t killed = workers.terminate_all(time); killed > 0 && orderly) {
      log_warning(fmt::format("workers_killed {} did not end by themselves", killed));
    }
    return first_loss.cause_of(std::move(outcome));
  }

 private:
  /// How they end: the cluster judges it while ranks start, then the conductor.
  RunFinished wait_for_end() {
    std::optional<RunFinished> outcome;
    const auto tell = [this](const auto& message) {
      ready_ ? caf::anon_send(actors_.conductor, message)
             : caf::anon_send(network_.cluster(), message);
    };
    while (!outcome) {
      const bool looks = ready_ && ((!for_nodes_ && !network_.returned().empty()) ||
                                    !run_.memory.before().empty());
      self_->receive([&](const ClusterReady& message) { connect(message); },
                     [&](const RunFinished& finished) { outcome = finished; },
                     [&](const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
                       came_late(node, launcher);
                     },
                     [&](const StopRequested& message) { tell(message); },
                     [&](const LauncherLost& lost) { tell(lost); },
                     [&](const caf::down_msg& down) {
                       if (const auto node = network_.launcher_down(down)) {
                         tell(LauncherLost{*node});
                       } else if (down.source == actors_.conductor.address()) {
                         outcome = head_failure(run_.first_step(), failure_text(down.reason));
                       }
                     },
                     caf::after(looks ? std::chrono::milliseconds(kBetweenLooks) : kIdle) >>
                         [&] {
                           if (ready_) {
                             run_.memory.finalize();
                             let_returned_in();
                           }
                         });
    }
    return *outcome;
  }

  void connect(const ClusterReady& message) {
    ready_ = message;
    run_.memory.finalize();
    std::vector<RankActor> ranks;
    for (const caf::strong_actor_ptr& rank : message.ranks) {
      ranks.push_back(caf::actor_cast<RankActor>(rank));
    }
    connect_head(actors_, ranks, caf::actor_cast<caf::actor>(self_));
    self_->monitor(actors_.conductor);
  }

  void came_late(const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
    std::vector<std::int64_t> returned = network_.returned();
    if (returned.empty()) {
      seen_.reset();
    }
    std::erase(returned, node.node);  // it may come a second time before the first is missed
    const auto nodes = static_cast<std::int64_t>(run_.members.size() + returned.size()) + 1;
    HeadFacts facts;  // without snapshots in memory their return would cost more than they bring
    facts.set(HeadFact::welcome, run_.memory.current() && plan_of_nodes(run_, nodes));
    network_.came_late(node, launcher,
                       decide(HeadState::training, HeadEvent::launcher_came, facts)
                           .has(HeadAction::keep_launcher));
  }

  /// Nodes that are back take part from a snapshot in memory on that is as new as can be.
  void let_returned_in() {
    if (for_nodes_ || network_.returned().empty()) {
      return;
    }
    const auto steps = run_.memory.current()->sealed_steps();
    const std::int64_t newest = steps.empty() ? -1 : steps.front();
    if (!seen_) {
      seen_ = newest;
    } else if (newest > *seen_) {
      const HeadStep step =
          decide(HeadState::training, HeadEvent::snapshot_sealed, {HeadFact::waiting});
      if (step.has(HeadAction::ask_for_place)) {
        for_nodes_ = true;
        caf::anon_send(actors_.conductor, NodesReturned{});
      }
    }
  }

  PreparedRun& run_;
  HeadParts parts_;  // before the system: actors keep lines of its wait board
  HeadNetwork& network_;
  caf::scoped_actor& self_;
  HeadActors actors_;
  caf::actor rendezvous_;
  std::optional<ClusterReady> ready_;  // none: ranks start
  std::optional<std::int64_t> seen_;   // newest snapshot when the first node was seen to be back
  bool for_nodes_ = false;             // the generation is to end for them
};

Status check_network(const configs::ParallelSection& parallel) {
  const auto options = listener_options(parallel);
  return options ? HeadListener::check(*options) : Status(options.error());
}

ProcessRanks::ProcessRanks(PreparedRun& run) : run_(run) {}
ProcessRanks::~ProcessRanks() = default;

Result<Membership> ProcessRanks::meet() {
  using Clock = std::chrono::steady_clock;
  // The first time nodes come when their batch system starts them.
  const bool first = run_.generation == 0;
  const configs::RecoverySection& recovery = run_.config().recovery;
  const auto deadline =
      Clock::now() + std::chrono::seconds(first ? recovery.start_wait_s : recovery.node_wait_s);
  auto network = HeadNetwork::open(run_);
  // Later it may be this node's own network that is cut.
  while (!network && !first && Clock::now() < deadline && stop_signal() == 0) {
    std::this_thread::sleep_for(kBetweenListens);
    network = HeadNetwork::open(run_);
  }
  if (network) {
    network_ = std::move(network).value();
    return network_->meet(deadline);
  }
  if (first) {
    return network.error();
  }
  return Membership{.held = std::vector<NodeSteps>(run_.members.size() - 1),
                    .missing = {run_.members.begin() + 1, run_.members.end()},
                    .returned = {},
                    .cut = network.error()};
}

Status ProcessRanks::restore() {
  if (moved_) {  // a launcher that was started anew does not know its position
    TRAIN_RETURN_IF_ERROR(network_->give_positions(/*memory_step=*/-1, /*earlier=*/false));
  }
  const auto start = run_.memory.start();
  if (!start || network_->missing() ||
      !run_.memory.before().empty()) {  // whoever has something of those keeps it
    return {};
  }
  TRAIN_RETURN_IF_ERROR(network_->restore_memory(start->origin.step));
  if (!network_->missing()) {
    run_.memory.returned_to_owners();
  }
  return {};
}

Status ProcessRanks::change_members(std::span<const std::int64_t> members) {
  std::vector<std::int32_t> now;  // by position until now
  for (const std::int64_t node : run_.members) {
    const auto found = std::find(members.begin(), members.end(), node);
    now.push_back(found == members.end() ? -1 : static_cast<std::int32_t>(found - members.begin()));
  }
  run_.members.assign(members.begin(), members.end());
  run_.memory.renumber_holders(now);
  moved_ = true;
  const bool earlier = !run_.memory.before().empty();
  TRAIN_RETURN_IF_ERROR(run_.memory.make_room(run_.plan, run_.position, true));
  const auto start = run_.memory.start();
  return network_->give_positions(start ? start->origin.step : -1, earlier);
}

void ProcessRanks::tell_again() {
  run_.nodes_awaited = network_->returned().size();
  network_->end_generation();
  close();
}

void ProcessRanks::tell_end(std::int32_t exit_code) {
  if (network_) {
    network_->end_nodes(exit_code);
  }
  close();
}

void ProcessRanks::close() {
  head_.reset();
  network_.reset();
}

Result<RunFinished> ProcessRanks::run(std::shared_ptr<RunReport> report) {
  const bool one_node = run_.nodes_at_start == 1;
  if (one_node) {  // nobody to meet
    auto network = HeadNetwork::open(run_);
    TRAIN_RETURN_IF_ERROR(network);
    network_ = std::move(network).value();
  }
  run_.nodes_awaited = 0;
  network_->send_returned_away();
  if (const auto lost = network_->missing()) {  // since they met
    Verdict verdict(HeadState::starting);
    verdict.hear(HeadEvent::launcher_lost, {}, {.node = *lost});
    return verdict.outcome(run_.first_step());
  }
  head_ = std::make_unique<GenerationHead>(run_, std::move(report), *network_);
  RunFinished outcome = head_->run();
  if (one_node) {
    close();
  }
  return outcome;
}

}  // namespace train::actors
