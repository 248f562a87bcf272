#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <string>
#include <vector>

// What a rank in a process of its own is told, and what it says until it is ready.
namespace train::actors {

/// Cluster -> worker: The answer to JoinCluster: the run, the state it starts from, and the actors
/// it reports to.
struct Assignment {
  std::uint32_t generation = 0;
  std::string config_text;        ///< Resolved, as TOML.
  std::string checkpoint;         ///< Directory to restore from; empty: initial weights.
  std::int64_t memory_step = -1;  ///< Restore this snapshot in memory instead; -1: none.
  std::int64_t memory_ranks = 0;  ///< So many have written it,
  std::string memory_holders;     ///< and here it is now: holders_text() of MemoryOrigin::holders.
  std::string run_directory;      ///< The run's.
  bool two_locations = false;     ///< Nodes write checkpoints to disks of their own first.
  std::string checkpoint_tag;     ///< Of those under construction.
  std::string trace_directory;    ///< Where to write what ran when; empty: nowhere.
  std::int32_t threads = 1;
  caf::strong_actor_ptr conductor;
  caf::strong_actor_ptr index;
  caf::strong_actor_ptr rendezvous;
  caf::strong_actor_ptr observer;
};

/// Launcher -> cluster: From here on the cluster admits workers, each with this assignment.
struct OpenCluster {
  Assignment assignment;
  std::int64_t ranks = 1;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest() of those ranks.
  std::string data_fingerprint;   ///< RunPlan::data_fingerprint, of the head.
};

/// Worker -> cluster: The worker has restored its state and is connected to all ranks. It waits for
/// commands.
struct WorkerReady {
  std::int32_t rank = 0;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest() as the worker derives it.
  std::string data_fingerprint;   ///< Of data.dir as the worker sees it.
  std::string kernel_set;
  caf::strong_actor_ptr rank_actor;
  caf::strong_actor_ptr process;  ///< Takes GoAway.
};

/// Worker -> cluster: The worker cannot take part.
struct WorkerFailed {
  std::int32_t rank = 0;
  std::string text;
  std::int32_t exit_code = 1;
  bool cause = false;  ///< It did not fail for want of another rank.
  bool lost = false;   ///< It lost another rank that it was or has been connected with.
};

/// Cluster -> main thread: All workers are ready.
struct ClusterReady {
  std::vector<caf::strong_actor_ptr> ranks;      ///< By rank.
  std::vector<caf::strong_actor_ptr> processes;  ///< By rank.
};

/// Cluster -> main thread: A worker cannot become ready, so the generation is over before its first
/// command.
struct ClusterFailed {
  std::string text;
  std::int32_t exit_code = 1;
  bool rank_lost = false;  ///< A process was killed or cannot be reached.
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Assignment& x) {
  return f(caf::meta::type_name("Assignment"), x.generation, x.config_text, x.checkpoint,
           x.memory_step, x.memory_ranks, x.memory_holders, x.run_directory, x.two_locations,
           x.checkpoint_tag, x.trace_directory, x.threads, x.conductor, x.index, x.rendezvous,
           x.observer);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerReady& x) {
  return f(caf::meta::type_name("WorkerReady"), x.rank, x.plan_digest, x.data_fingerprint,
           x.kernel_set, x.rank_actor, x.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerFailed& x) {
  return f(caf::meta::type_name("WorkerFailed"), x.rank, x.text, x.exit_code, x.cause, x.lost);
}

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OpenCluster)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ClusterReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ClusterFailed)
