#include "actors/cluster/recovery/worker_rank.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stop_token>
#include <variant>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/network/worker_process.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/system/actor_systems.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/runtime/rank_profile.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "actors/training_system.hpp"
#include "base/process/host_name.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "base/text/uncaught.hpp"
#include "configs/load_config.hpp"
#include "engine/collective/tcp_transport.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/run_directory.hpp"
#include "run/memory/memory_layout.hpp"
#include "run/plan/node_position.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;

constexpr auto kJoinTime = 30s;  // Limit for finding the head and joining.
// Limit for the set-up of all ranks: one may have a large file to read. Later exchanges have no
// limit: a slow rank lives, and a lost one is detected by connections and heartbeats.
constexpr auto kSetUpTime = 120s;

[[noreturn]] void leave(int exit_code) {
  finish_output();
  std::_Exit(exit_code);
}

/// Settings on which rank and head must agree.
struct Identity {
  std::uint64_t plan_digest = 0;
  std::string data_fingerprint;
};

/// Memory whose descriptor the launcher left open; nullopt: none.
Result<run::SharedSnapshots> attach_memory(std::int64_t descriptor) {
  if (descriptor < 0) {
    return run::SharedSnapshots();
  }
  auto attached = TRAIN_TRY(checkpoint::MemorySnapshots::attach(static_cast<int>(descriptor)));
  return std::make_shared<const checkpoint::MemorySnapshots>(std::move(attached));
}

/// Makes NCCL use this network for its rendezvous, as for all other traffic; it would choose one
/// itself.
void bind_nccl(const std::string& interface) {
  const std::string name = "=" + (interface.empty() ? std::string("lo") : interface);
  ::setenv("NCCL_SOCKET_IFNAME", name.c_str(), /*overwrite=*/0);
}

struct Worker {
  const WorkerOptions& options;
  caf::actor_system& system;
  caf::scoped_actor& self;
  caf::actor head;

  [[nodiscard]] std::variant<Assignment, Refused> join() const {
    std::variant<Assignment, Refused> answer = Refused{"the head does not answer"};
    self->send(head, JoinCluster{.rank = static_cast<std::int32_t>(options.rank),
                                 .host = host_name(),
                                 .version = ACTORTRAIN_VERSION});
    self->monitor(head);
    self->receive([&](const Assignment& given) { answer = given; },
                  [&](const Refused& refused) { answer = refused; },
                  [&](const caf::down_msg&) {
                    say_head_is_gone();
                    leave(kExitWithoutHead);
                  },
                  caf::after(kJoinTime) >> [] {});
    self->demonitor(head);
    return answer;
  }

  /// `peer_lost`: it failed because a rank that it was connected with, now or earlier, is missing.
  [[nodiscard]] Result<RankContext> set_up(const Assignment& assignment,
                                           std::int64_t& digest_interval, Identity& identity,
                                           bool& peer_lost) const {
    const auto config =
        TRAIN_TRY(configs::parse_config(assignment.config_text, "the head's configuration", {}));
    if (config.runtime.device != "cpu") {
      const configs::ParallelSection& parallel = config.parallel;
      engine::take_device(run::local_rank(options.rank, parallel.ranks, parallel.nodes));
      bind_nccl(parallel.interface);
    }
    auto plan = TRAIN_TRY(run::plan_run(config));
    if (assignment.phase_step >= 0) {
      TRAIN_RETURN_IF_ERROR(run::enter_phase(plan, assignment.phase_step));
    }
    digest_interval = config.run.digest_interval_steps;
    identity = {.plan_digest = plan.plan_digest, .data_fingerprint = plan.data_fingerprint};
    const auto memory = attach_memory(options.memory);
    const auto start = TRAIN_TRY(memory ? memory_start(assignment, *memory)
                                        : Result<std::optional<run::MemoryStart>>(memory.error()));
    StartState state{.memory = start,
                     .references_done = assignment.references_done,
                     .identity = {.id = assignment.run_id}};
    if (!assignment.checkpoint.empty()) {
      state.checkpoint = assignment.checkpoint;
    }
    auto context = TRAIN_TRY(make_rank(plan, options.rank, state, assignment.threads));
    // Pinned memory is allocated before ranks exchange anything: allocation may wait for all work
    // of the device, and that for another rank.
    context->memory = {.snapshots = *memory,
                       .interval = config.recovery.snapshot_interval_steps,
                       .rows = *memory ? run::memory_rows(*context->engine, **memory) : nullptr};
    context->staging = std::make_shared<Staging>();
    TRAIN_RETURN_IF_ERROR(context->staging->prepare(context->engine->state().shard_views(),
                                                    context->engine->device()));
    context->generation = assignment.generation;
    RemoteStore store(system, caf::actor_cast<caf::actor>(assignment.rendezvous), "data/");
    auto transports =
        engine::make_tcp(store, {.rank = static_cast<int>(options.rank),
                                 .world_size = static_cast<int>(config.parallel.ranks),
                                 .interface = config.parallel.interface,
                                 .generation = assignment.generation,
                                 .timeout = kSetUpTime,
                                 .nccl = plan.config.parallel.transport == "nccl"});
    // At a first start the network is misconfigured; later it worked, and may work again.
    peer_lost = assignment.generation > 0;
    TRAIN_RETURN_IF_ERROR(transports);
    peer_lost = true;
    context->transports = std::move(transports).value();
    if (start) {
      TRAIN_RETURN_IF_ERROR(restore(*start, *context));
    }
    return context;
  }

  /// nullopt: the rank does not resume from memory. `memory`: place of this generation's snapshots.
  [[nodiscard]] Result<std::optional<run::MemoryStart>> memory_start(
      const Assignment& assignment, const run::SharedSnapshots& memory) const {
    if (assignment.memory.step < 0) {
      return std::optional<run::MemoryStart>();
    }
    run::MemoryStart start{.origin = assignment.memory, .here = {}};
    for (const std::int64_t descriptor : {options.memory_before, options.memory_buddy_before}) {
      const auto before = TRAIN_TRY(attach_memory(descriptor));
      if (before) {
        start.here.push_back(before);
      }
    }
    if (start.here.empty() && memory) {
      start.here.push_back(memory);
    }
    return std::optional(std::move(start));
  }

  /// Restores together with all other ranks. Afterwards the node's memory also holds the state as
  /// sharded by these ranks.
  [[nodiscard]] Status restore(const run::MemoryStart& start, RankRuntime& rank) const {
    // Snapshots in memory are host memory on every device.
    const auto& transport = rank.transports[static_cast<std::size_t>(engine::Channel::control)];
    TRAIN_RETURN_IF_ERROR(
        run::restore_from_memory(start, *rank.engine, transport.get(), rank.generation));
    if (rank.memory.snapshots) {
      run::write_to_memory(*rank.memory.rows, rank.rank, start.origin.step, *rank.memory.snapshots);
    }
    return {};
  }

  [[nodiscard]] Result<ShardWork> set_up_shards(const Assignment& assignment,
                                                const std::stop_token& stop) const {
    const auto config =
        TRAIN_TRY(configs::parse_config(assignment.config_text, "the head's configuration", {}));
    const auto places = run::find_places(assignment.run_directory, config.checkpoint.local_dir);
    if (places.two() != assignment.two_locations) {
      return user_error(
          fmt::format("rank {}: checkpoint.local_dir = \"{}\", but SLURM_TMPDIR is {} on {} and {} "
                      "on the head's "
                      "node; set it on all nodes, or checkpoint.local_dir to a path or \"none\"",
                      options.rank, config.checkpoint.local_dir, places.two() ? "set" : "not set",
                      host_name(), places.two() ? "not" : "set"));
    }
    return shard_work({.places = places,
                       .tag = assignment.checkpoint_tag,
                       .identity = {.id = assignment.run_id},
                       .begins = assignment.checkpoint.empty() && assignment.memory.step <= 0,
                       .rsync = {.stop = stop}},
                      config.parallel, options.rank);
  }

  [[nodiscard]] int follow(const Assignment& assignment) const {
    std::int64_t digest_interval = 0;
    Identity identity;
    bool peer_lost = false;
    const auto rank = static_cast<std::int32_t>(options.rank);
    std::stop_source copies;
    Result<RankContext> context = failure("not set up");
    Result<ShardWork> shards = failure("not set up");
    try {
      context = set_up(assignment, digest_interval, identity, peer_lost);
      shards = context ? set_up_shards(assignment, copies.get_token())
                       : Result<ShardWork>(context.error());
    } catch (...) {
      self->send(head, WorkerFailed{rank,
                                    fmt::format("rank {} failed: starting: {}", rank,
                                                exception_text(std::current_exception())),
                                    kExitFailure, true});
      return wait_for_end();
    }
    if (!shards) {
      const Error& error = shards.error();
      const bool damaged = error.kind == ErrorKind::damage;
      self->send(head,
                 WorkerFailed{.rank = rank,
                              .text = damaged ? fmt::format("rank {}: {}", rank, error.message)
                                              : error.message,
                              .exit_code = error.exit_code(),
                              .lost = !context && peer_lost,
                              .damaged = damaged});
      return wait_for_end();
    }
    if (!assignment.trace_directory.empty()) {
      (*context)->start_trace();
    }
    RankActors actors = start_rank(system,
                                   {.context = *context,
                                    .shards = std::move(shards).value(),
                                    .reporting = {.digest_interval = digest_interval}},
                                   {caf::actor_cast<ConductorActor>(assignment.conductor),
                                    caf::actor_cast<IndexActor>(assignment.index),
                                    caf::actor_cast<ObserverActor>(assignment.observer)});
    self->send(head, WorkerReady{.rank = rank,
                                 .plan_digest = identity.plan_digest,
                                 .data_fingerprint = identity.data_fingerprint,
                                 .kernel_set = (*context)->engine->kernel_set(),
                                 .rank_actor = caf::actor_cast<caf::strong_actor_ptr>(actors.rank),
                                 .process = caf::actor_cast<caf::strong_actor_ptr>(self)});
    const int exit_code = wait_for_end();
    copies.request_stop();  // A copy still running had its time.
    for (const auto& transport : (*context)->transports) {
      transport->cancel("the run is over");
    }
    if (!assignment.trace_directory.empty()) {
      if (const Status written = write_rank_profile(assignment.trace_directory, **context);
          !written) {
        log_error(fmt::format("rank {}: {}", rank, written.error().message));
      }
    }
    if (exit_code != kExitFinished && exit_code != kExitStopped) {
      // Streams may be in the middle of long work that is no longer needed; this process leaves on
      // the disk only shards that are never published.
      leave(exit_code);
    }
    stop_actors(actors.all);
    return exit_code;
  }

  [[nodiscard]] int wait_for_end() const {
    int exit_code = kExitWithoutHead;
    self->monitor(head);
    self->receive([&](const Shutdown& order) { exit_code = order.exit_code; },
                  [&](const caf::down_msg&) { say_head_is_gone(); });
    return exit_code;
  }

  /// Without its head a rank cannot continue.
  void say_head_is_gone() const {
    log_error(fmt::format("rank {}: the head is gone", options.rank));
  }
};

}  // namespace

Result<int> serve_rank(const WorkerOptions& options) {
  report_uncaught(fmt::format("rank {} ", options.rank), UncaughtEnd::abort);
  const QueuedOutput output(/*json=*/false);
  const auto endpoint = parse_endpoint(options.head);
  const auto credentials = load_credentials(options.credentials);
  if (!endpoint || !credentials) {
    return endpoint ? credentials.error() : endpoint.error();
  }
  ControlConfig config;
  const auto system = make_actor_system(config);
  return beside_actors([&]() -> Result<int> {
    const auto head = connect_to_head(*system, *credentials, *endpoint, kJoinTime);
    if (!head) {
      return Error{head.error().kind,
                   fmt::format("rank {}: {}", options.rank, head.error().message)};
    }
    caf::scoped_actor self(*system);
    const Worker worker{options, *system, self, *head};
    const auto answer = worker.join();
    if (const auto* refused = std::get_if<Refused>(&answer)) {
      if (!refused->over) {
        log_error(fmt::format("rank {} was not taken in: {}", options.rank, refused->text));
      }
      leave(kExitUserError);
    }
    const int exit_code = worker.follow(std::get<Assignment>(answer));
    // Actors connected across processes would wait for one another at the end.
    leave(exit_code);
  });
}

}  // namespace train::actors
