#pragma once

#include <caf/actor_control_block.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/fields.hpp"
#include "run/events/outcome.hpp"
#include "run/memory/snapshot_places.hpp"

// Between the head, the launchers of other nodes and the workers: joining, rendezvous, leaving;
// orders to a rank in its own process, and its replies until it is ready.
namespace train::actors {

/// Worker -> cluster: The first message of a worker process. Answered by Assignment or Refused.
struct JoinCluster {
  std::int32_t rank = 0;
  std::string host;
  std::string version;  ///< Version of the program.
};

/// Cluster -> worker: The worker may not take part, and ends with this text.
struct Refused {
  std::string text;
  bool over = false;  ///< The run has failed meanwhile; the head reports the cause.
};

/// Launcher of a node -> cluster: A worker process has ended. The cluster reports it to the
/// conductor as RankFailed.
struct WorkerExited {
  std::int32_t rank = 0;
  std::string text;     ///< "killed by SIGKILL", "exit code 3".
  bool killed = false;  ///< By an external signal, not by an error of its own.
};

/// Part of NodeJoined: Steps of the complete snapshots that a node holds, newest first.
using run::NodeSteps;

/// Launcher of another node -> cluster -> main thread: The first message of a node in a generation:
/// none of its ranks runs. Answered by StartRanks when all nodes are there, or by GenerationOver.
/// Nodes have their numbers in the Slurm step, whether or not all of them still take part.
struct NodeJoined {
  std::int32_t node = 0;
  NodeSteps held;
  std::string snapshots;  ///< Address for receiving snapshots, HOST:PORT; empty: none.
};

/// Main thread -> launcher of another node: Nodes are gone, or have returned. Gives the node its
/// position among those that take part, and the step that it resumes from. Answered by
/// MemoryRestored when there is room for its snapshots.
struct TakePosition {
  std::int32_t node = 0;  ///< Position among the nodes that take part.
  std::int32_t nodes = 1;
  std::int64_t ranks = 1;  ///< On all nodes together.
  /// The position is new, and the ranks resume from this step's snapshots of the earlier ranks; -1:
  /// from none.
  std::int64_t memory_step = -1;
  bool earlier = false;  ///< The snapshots are those of NodeSteps::earlier.
};

/// Main thread -> launcher of another node: Some node lacks the snapshots to resume from. Make sure
/// that the previous node's ranks and its own have their snapshots of `step`. Answered by
/// MemoryRestored.
struct RestoreMemory {
  std::int64_t step = 0;
  std::string give_to;  ///< Address at which the previous node receives its snapshots from this
                        ///< one; empty: it needs none.
  bool take = false;    ///< This node's own ranks get their snapshots from the next node.
};

/// Launcher of another node -> main thread: The answer to TakePosition and to RestoreMemory.
struct MemoryRestored {
  std::int32_t node = 0;
  std::string failure;  ///< Empty: success.
};

/// Main thread -> launcher of another node: All nodes are there, and the state to resume from is
/// known. Start the node's ranks.
struct StartRanks {
  std::int64_t memory_step = -1;  ///< Snapshot step to resume from; -1: none.
  bool earlier = false;           ///< It is that of NodeSteps::earlier.
  std::string buddy;  ///< Address at which the next node receives this one's snapshots; empty:
                      ///< none.
};

/// Main thread -> launcher of another node: This generation of ranks is over. With `again` the
/// launcher ends its ranks and joins the next one; otherwise it ends, and answers with NodeIdle
/// when none of its ranks runs any more.
struct GenerationOver {
  bool again = false;
  std::int32_t exit_code = 0;  ///< For the launcher, unless all its ranks have ended in order.
  bool without = false;        ///< The run continues without this node, which has come too late.
};

/// Launcher of another node -> main thread: After the last GenerationOver, none of the node's ranks
/// runs any more.
struct NodeIdle {
  std::int32_t node = 0;
};

/// Main thread -> worker: End the process with this code. Its generation is over.
struct Shutdown {
  std::int32_t exit_code = 0;
};

/// Worker -> rendezvous: Set this key, once, to this value. Answered by RendezvousAnswer. The bytes
/// are a string because the framework checks a string's length before allocating, and a vector's
/// after.
struct RendezvousSet {
  std::string key;
  std::string bytes;
};

/// Worker -> rendezvous: Get the value of this key. Answered by RendezvousAnswer as soon as the key
/// is set, or cannot be.
struct RendezvousGet {
  std::string key;
};

/// Rendezvous -> worker: The key is set (RendezvousSet), or the value that RendezvousGet asked for.
struct RendezvousAnswer {
  std::string key;
  std::string bytes;    ///< Value for a get.
  std::string refusal;  ///< Reason why the key cannot be set or got; empty: success.
};

/// Part of Assignment: Ranks that wrote the snapshot that a run resumes from, and the nodes that
/// hold it.
using run::MemoryOrigin;

/// Cluster -> worker: The answer to JoinCluster: the run, its start state, and the actors to report
/// to.
struct Assignment {
  std::uint32_t generation = 0;
  std::string config_text;           ///< Resolved configuration, as TOML.
  std::string checkpoint;            ///< Directory to restore from; empty: initial weights.
  MemoryOrigin memory;               ///< Restored instead, if it exists.
  std::int64_t phase_step = -1;      ///< RankOptions::phase_step.
  std::int64_t references_done = 0;  ///< As in StartState.
  std::string run_directory;         ///< Directory of the run.
  bool two_locations = false;        ///< Nodes first write checkpoints to disks of their own.
  std::string run_id;                ///< RunIdentity::id.
  std::string checkpoint_tag;        ///< Tag of checkpoints under construction.
  std::string trace_directory;       ///< Directory for the trace; empty: none.
  std::int32_t threads = 1;
  caf::strong_actor_ptr conductor;
  caf::strong_actor_ptr index;
  caf::strong_actor_ptr rendezvous;
  caf::strong_actor_ptr observer;
};

/// Launcher -> cluster: From now on the cluster admits workers, each with this assignment.
struct OpenCluster {
  Assignment assignment;
  std::int64_t ranks = 1;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest() of those ranks.
  std::string data_fingerprint;   ///< RunPlan::data_fingerprint of the head.
};

/// Worker -> cluster: The worker has restored its state and is connected to all ranks. It waits for
/// commands.
struct WorkerReady {
  std::int32_t rank = 0;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest() as the worker derives it.
  std::string data_fingerprint;   ///< Fingerprint of data.dir as seen by the worker.
  std::string kernel_set;
  caf::strong_actor_ptr rank_actor;
  caf::strong_actor_ptr process;  ///< Receives Shutdown.
};

/// Worker -> cluster: The worker cannot take part.
struct WorkerFailed {
  std::int32_t rank = 0;
  std::string text;
  std::int32_t exit_code = 1;
  bool cause = false;    ///< It did not fail because another rank is missing.
  bool lost = false;     ///< It lost another rank that it was connected with, now or earlier.
  bool damaged = false;  ///< The bytes read of its checkpoint differ from those saved.
};

/// Cluster -> main thread: All workers are ready.
struct ClusterReady {
  std::vector<caf::strong_actor_ptr> ranks;      ///< By rank.
  std::vector<caf::strong_actor_ptr> processes;  ///< By rank.
};

/// Main thread -> cluster or conductor: The launcher of a node has ended or is unreachable. The
/// cluster returns it, for the conductor, if the ranks train by then.
struct LauncherLost {
  std::int64_t node = 0;  ///< Original number of the node.
};

}  // namespace train::actors

TRAIN_CROSSING_MESSAGE(train::actors::JoinCluster)
TRAIN_CROSSING_MESSAGE(train::actors::Refused)
TRAIN_CROSSING_MESSAGE(train::actors::WorkerExited)
TRAIN_CROSSING_MESSAGE(train::actors::NodeJoined)
TRAIN_CROSSING_MESSAGE(train::actors::TakePosition)
TRAIN_CROSSING_MESSAGE(train::actors::RestoreMemory)
TRAIN_CROSSING_MESSAGE(train::actors::MemoryRestored)
TRAIN_CROSSING_MESSAGE(train::actors::StartRanks)
TRAIN_CROSSING_MESSAGE(train::actors::GenerationOver)
TRAIN_CROSSING_MESSAGE(train::actors::NodeIdle)
TRAIN_CROSSING_MESSAGE(train::actors::Shutdown)
TRAIN_CROSSING_MESSAGE(train::actors::RendezvousSet)
TRAIN_CROSSING_MESSAGE(train::actors::RendezvousGet)
TRAIN_CROSSING_MESSAGE(train::actors::RendezvousAnswer)
TRAIN_CROSSING_MESSAGE(train::actors::Assignment)
TRAIN_LOCAL_MESSAGE(train::actors::OpenCluster)
TRAIN_CROSSING_MESSAGE(train::actors::WorkerReady)
TRAIN_CROSSING_MESSAGE(train::actors::WorkerFailed)
TRAIN_LOCAL_MESSAGE(train::actors::ClusterReady)
TRAIN_LOCAL_MESSAGE(train::actors::LauncherLost)
