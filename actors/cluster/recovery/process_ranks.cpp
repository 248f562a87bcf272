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
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/cluster/recovery/head_network.hpp"
#include "actors/cluster/recovery/node_run.hpp"
#include "actors/head/head_setup.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/system/supervision.hpp"
#include "base/exit_codes.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "run/recovery/verdict.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kOrderlyEnd = 10s;  // For workers told to end.
constexpr std::chrono::milliseconds kEndAfterFailure = 200ms;
constexpr std::chrono::milliseconds kEndAfterLoss = 600ms;  // A large process takes time to end.
constexpr auto kBetweenListens = 200ms;                     // Interval of attempts to listen.
constexpr auto kBetweenLooksForSnapshot = 50ms;  // Interval of checks for a snapshot that returned
                                                 // nodes wait for.

}  // namespace

/// Head of one generation of ranks, from their start to their end.
class GenerationHead {
 public:
  GenerationHead(run::PreparedRun& run, std::shared_ptr<run::RunReport> report,
                 HeadNetwork& network)
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
    parts_.disk.reset();  // Its running work uses actors: finished before their system ends.
  }

  RunFinished run() {
    // Set up before the first worker, whose end may be reported at any time.
    std::atomic<bool> over{false};
    run::FirstLoss first_loss;
    WorkerProcesses workers(
        loop_of(network_.system()), [this, &over, &first_loss](const run::WorkerEnd& end) {
          first_loss.hear(end);
          if (!over) {
            caf::anon_send(network_.cluster(), WorkerExited{end.rank, end.text, end.killed});
          }
        });
    const SignalListener signals([me = caf::actor_cast<caf::actor>(self_)](int signal) {
      caf::anon_send(me, StopRequested{signal});
    });
    network_.start_ranks();
    start_workers(workers, run_.nodes.position, run_.config().parallel.ranks, network_.endpoint(),
                  run_.directory.root, run_.memory);
    RunFinished outcome = wait_for_end();
    over = true;
    const bool orderly =
        trains() && (outcome.exit_code == kExitFinished || outcome.exit_code == kExitStopped);
    for (const caf::strong_actor_ptr& process : processes_) {
      caf::anon_send(caf::actor_cast<caf::actor>(process),
                     Shutdown{orderly ? kExitFinished : kExitFailure});
    }
    if (!trains()) {
      outcome.step = run_.first_step();
    }
    // Ranks with a profile to write get time for it after a failure, too.
    const auto time = !trains()                                     ? 0ms
                      : orderly || run_.reporting.profile           ? kOrderlyEnd
                      : outcome.end != run::GenerationEnd::run_over ? kEndAfterLoss
                                                                    : kEndAfterFailure;
    if (const std::size_t killed = workers.terminate_all(time); killed > 0 && orderly) {
      log_warning(fmt::format("workers_killed {} did not end by themselves", killed));
    }
    return first_loss.cause_of(std::move(outcome));
  }

 private:
  /// Judged by the cluster while ranks start, then by the conductor.
  RunFinished wait_for_end() {
    std::optional<RunFinished> outcome;
    const auto tell = [this](const auto& message) {
      trains() ? caf::anon_send(actors_.conductor, message)
               : caf::anon_send(network_.cluster(), message);
    };
    while (!outcome) {
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
                         outcome = run::head_failure(run_.first_step(), failure_text(down.reason));
                       }
                     },
                     caf::after(kBetweenLooksForSnapshot) >>
                         [&] {
                           if (trains()) {
                             run_.memory.finalize();
                             let_returned_in();
                           }
                         });
    }
    return *outcome;
  }

  /// True if all ranks train; false while they start.
  [[nodiscard]] bool trains() const { return !processes_.empty(); }

  void connect(const ClusterReady& message) {
    processes_ = message.processes;
    if (!run_.memory.start()) {
      parts_.disk->enqueue([store = run_.store.get()] { store->restored(); });
    }
    run_.memory.finalize();
    std::vector<RankActor> ranks;
    ranks.reserve(message.ranks.size());
    for (const caf::strong_actor_ptr& rank : message.ranks) {
      ranks.push_back(caf::actor_cast<RankActor>(rank));
    }
    connect_head(actors_, ranks, caf::actor_cast<caf::actor>(self_));
    self_->monitor(actors_.conductor);
  }

  /// A launcher of a node that no longer takes part waits for a place, if there could be one;
  /// another node must first be missing.
  void came_late(const NodeJoined& node, const caf::strong_actor_ptr& launcher) {
    if (!launcher || network_.takes_part(node.node)) {
      return;
    }
    std::vector<std::int64_t> returned = network_.returned();
    if (returned.empty()) {
      seen_.reset();
    }
    std::erase(returned, node.node);  // It may come again before its first connection is noticed as
                                      // lost.
    const auto nodes = static_cast<std::int64_t>(run_.nodes.members.size() + returned.size()) + 1;
    // Without snapshots in memory a return costs more than it brings.
    const bool welcome = run_.memory.current() && run::plan_of_nodes(run_, nodes);
    if (run::may_wait(welcome)) {
      network_.joined(node, launcher);
    } else {
      self_->send(caf::actor_cast<caf::actor>(launcher), GenerationOver{.without = true});
    }
  }

  /// Lets returned nodes take part, at a snapshot as new as possible.
  void let_returned_in() {
    if (for_nodes_ || network_.returned().empty()) {
      return;
    }
    const auto steps = run_.memory.current()->sealed_steps();
    const std::int64_t newest = steps.empty() ? -1 : steps.front();
    if (!seen_) {
      seen_ = newest;
    } else if (newest > *seen_ && decide(run::HeadState::training, run::HeadEvent::snapshot_sealed,
                                         {run::HeadFact::waiting})
                                      .has(run::HeadAction::ask_for_place)) {
      for_nodes_ = true;
      caf::anon_send(actors_.conductor, NodesReturned{});
    }
  }

  run::PreparedRun& run_;
  HeadParts parts_;  // Before the system: actors hold rows of its wait table.
  HeadNetwork& network_;
  caf::scoped_actor& self_;
  HeadActors actors_;
  caf::actor rendezvous_;
  std::vector<caf::strong_actor_ptr> processes_;  // Processes of the ranks that train.
  std::optional<std::int64_t> seen_;  // Newest snapshot when the first node's return was noticed.
  bool for_nodes_ = false;            // The generation ends to include them.
};

Status check_network(const configs::ParallelSection& parallel) {
  const auto options = listener_options(parallel);
  return options ? HeadListener::check(*options) : Status(options.error());
}

ProcessRanks::ProcessRanks(run::PreparedRun& run) : run_(run) {}
ProcessRanks::~ProcessRanks() { forget_endpoint(endpoint_file(run_.directory.root)); }

Result<run::Membership> ProcessRanks::meet() {
  // At first, nodes come when the batch system starts them.
  const bool first = run_.generation == 0;
  const configs::RecoverySection& recovery = run_.config().recovery;
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::seconds(first ? recovery.start_wait_s : recovery.node_wait_s);
  auto network = HeadNetwork::open(run_);
  // Later, this node's own network may be down.
  while (!network && !first && std::chrono::steady_clock::now() < deadline && stop_signal() == 0) {
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
  return run::Membership{.held = std::vector<NodeSteps>(run_.nodes.members.size() - 1),
                         .missing = {run_.nodes.members.begin() + 1, run_.nodes.members.end()},
                         .returned = {},
                         .cut = network.error()};
}

Status ProcessRanks::place(std::span<const std::int64_t> members) {
  const auto start = run_.memory.start();
  const std::int64_t step = start ? start->origin.step : -1;
  const bool earlier = !run_.memory.before().empty();
  if (!std::equal(members.begin(), members.end(), run_.nodes.members.begin(),
                  run_.nodes.members.end())) {
    run_.memory.renumber_holders(run_.nodes.members, members);
    run_.nodes.members.assign(members.begin(), members.end());
    TRAIN_RETURN_IF_ERROR(run_.memory.make_room(run_.plan, run_.nodes.position, true));
    return network_->give_positions(step, earlier);
  }
  // If some are gone for good a restarted launcher does not know its position.
  if (static_cast<std::int64_t>(members.size()) < run_.nodes.nodes_at_start) {
    TRAIN_RETURN_IF_ERROR(network_->give_positions(/*memory_step=*/-1, /*earlier=*/false));
  }
  if (!start || earlier || network_->missing()) {  // Holders of earlier snapshots keep them.
    return {};
  }
  TRAIN_RETURN_IF_ERROR(network_->restore_memory(step));
  if (!network_->missing()) {
    run_.memory.snapshots_returned();
  }
  return {};
}

void ProcessRanks::tell(const GenerationOver& over) {
  if (network_) {
    run_.nodes.awaited = network_->returned().size();
    network_->end(over);
  }
  head_.reset();
  network_.reset();
}

Result<RunFinished> ProcessRanks::run(std::shared_ptr<run::RunReport> report) {
  const bool one_node = run_.nodes.nodes_at_start == 1;
  if (one_node) {  // There are no other nodes.
    network_ = TRAIN_TRY(HeadNetwork::open(run_));
  }
  run_.nodes.awaited = 0;
  network_->send_returned_away();
  if (const auto lost = network_->missing()) {  // Lost since the meeting.
    run::Verdict verdict(run::HeadState::starting);
    verdict.launcher_lost(*lost);
    return verdict.outcome(run_.first_step());
  }
  head_ = std::make_unique<GenerationHead>(run_, std::move(report), *network_);
  RunFinished outcome = head_->run();
  if (one_node) {
    join_again();
  }
  return outcome;
}

}  // namespace train::actors
