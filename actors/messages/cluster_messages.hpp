#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/fields.hpp"

// Between the head, the launchers of other nodes and the workers: joining, finding each other,
// leaving; what a rank in a process of its own is told, and what it says until it is ready.
namespace train::actors {

/// Worker -> cluster: The first message of a worker process. Answered by Assignment or Refused.
struct JoinCluster {
  std::int32_t rank = 0;
  std::string host;
  std::string version;  ///< Of the program.
};

/// Cluster -> worker: The worker may not take part, and ends with this text.
struct Refused {
  std::string text;
  bool over = false;  ///< The run has failed meanwhile; the head says why.
};

/// Launcher of a node -> cluster: A worker process has ended. The cluster reports it to the
/// conductor as RankFailed.
struct WorkerExited {
  std::int32_t rank = 0;
  std::string text;     ///< "killed by SIGKILL", "exit code 3".
  bool killed = false;  ///< From outside: not by an error of its own.
};

/// Part of NodeJoined: The steps of which a node has snapshots in memory of all ranks of a node,
/// the newest first.
struct NodeSteps {
  std::vector<std::int64_t> own;
  std::vector<std::int64_t> buddy;  ///< Of the node before it; the last node is before node 0.
  /// The step that the ranks went on from when their numbers became others, if the node still has
  /// what it then had of the ranks before; -1: it has not.
  std::int64_t earlier = -1;
};

/// Launcher of another node -> cluster -> main thread: The first message of a node in a generation:
/// none of its ranks runs. Answered by StartRanks when all nodes are there, or by GenerationOver.
/// Nodes are called by their number in the Slurm step, whether or not all of them still take part.
struct NodeJoined {
  std::int32_t node = 0;
  NodeSteps held;
  std::string snapshots;  ///< Where it takes snapshots in memory, HOST:PORT; empty: nowhere.
};

/// Main thread -> launcher of another node: Nodes are gone, or back. The message gives the node its
/// position among those that take part, and says what it resumes from. Answered by MemoryRestored
/// when there is room for its snapshots.
struct TakePosition {
  std::int32_t node = 0;  ///< Its number among those that take part.
  std::int32_t nodes = 1;
  std::int64_t ranks = 1;  ///< Of all nodes.
  /// The position is a new one, and the ranks resume from this step's snapshots of the ranks
  /// before; -1: from none.
  std::int64_t memory_step = -1;
  bool earlier = false;  ///< Those of NodeSteps::earlier.
};

/// Main thread -> launcher of another node: Some node lacks the snapshots to resume from. Make sure
/// that the ranks of the node before it and its own have their snapshots of `step`. Answered by
/// MemoryRestored.
struct RestoreMemory {
  std::int64_t step = 0;
  std::string give_to;  ///< Where the node before takes what this one has of it; empty: it needs
                        ///< nothing.
  bool take = false;    ///< What this node's own ranks need comes from the next node.
};

/// Launcher of another node -> main thread: The answer to TakePosition and to RestoreMemory.
struct MemoryRestored {
  std::int32_t node = 0;
  std::string failure;  ///< Empty: done.
};

/// Main thread -> launcher of another node: All nodes are there, and the state to resume from is
/// known. Start the node's ranks.
struct StartRanks {
  std::int64_t memory_step = -1;  ///< They resume from this snapshot in memory; -1: from none.
  bool earlier = false;           ///< Which is that of NodeSteps::earlier.
  std::string buddy;  ///< Where the next node takes this one's snapshots; empty: nowhere.
};

/// Main thread -> launcher of another node: This generation of ranks is over. With `again` the
/// launcher ends its ranks and joins the next one; else it ends, and answers with NodeIdle when
/// none of its ranks runs any more.
struct GenerationOver {
  bool again = false;
  std::int32_t exit_code = 0;  ///< Of the launcher, unless all its ranks have ended in order.
  bool without = false;        ///< The run goes on without this node, which has come too late.
};

/// Launcher of another node -> main thread: After the last GenerationOver, none of the node's ranks
/// runs any more.
struct NodeIdle {
  std::int32_t node = 0;
};

/// Main thread -> worker: End the process with this code. Its generation is over, and so is its
/// work.
struct GoAway {
  std::int32_t exit_code = 0;
};

/// Worker -> rendezvous: This key has this value, once and for all. Answered by RendezvousAnswer.
/// The bytes are a string because the framework checks a string's length before it makes room for
/// it, and a vector's after.
struct RendezvousSet {
  std::string key;
  std::string bytes;
};

/// Worker -> rendezvous: What is the value of this key? Answered by RendezvousAnswer as soon as the
/// key is set, or will not be.
struct RendezvousGet {
  std::string key;
};

/// Rendezvous -> worker: The key has its value: that of RendezvousSet, or the one that
/// RendezvousGet asked for.
struct RendezvousAnswer {
  std::string key;
  std::string bytes;    ///< Of a get.
  std::string refusal;  ///< Why the key cannot be set, or will not be; empty: it is.
};

/// Part of Assignment: Whose ranks wrote the snapshot in memory that a run resumes from, and where
/// it is.
struct MemoryOrigin {
  std::int64_t step = -1;  ///< None: -1.
  std::int64_t ranks = 1;
  /// By node of those ranks: which node of those that go on has their snapshots.
  std::vector<std::int32_t> holders = {};
  /// By node of those ranks: which other node has them as well; -1: none. The head's alone.
  std::vector<std::int32_t> spares = {};
};

/// Cluster -> worker: The answer to JoinCluster: the run, the state it starts from, and the actors
/// it reports to.
struct Assignment {
  std::uint32_t generation = 0;
  std::string config_text;           ///< Resolved, as TOML.
  std::string checkpoint;            ///< Directory to restore from; empty: initial weights.
  MemoryOrigin memory;               ///< To restore instead, if there is one.
  std::int64_t phase_step = -1;      ///< RankOptions::phase_step.
  std::int64_t references_done = 0;  ///< As StartState has it.
  std::string run_directory;         ///< The run's.
  bool two_locations = false;        ///< Nodes write checkpoints to disks of their own first.
  std::string run_id;                ///< RunIdentity::id.
  std::string checkpoint_tag;        ///< Of those under construction.
  std::string trace_directory;       ///< Where to write what ran when; empty: nowhere.
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
  bool cause = false;    ///< It did not fail for want of another rank.
  bool lost = false;     ///< It lost another rank that it was or has been connected with.
  bool damaged = false;  ///< What it read of its checkpoint is not what was saved.
};

/// Cluster -> main thread: All workers are ready.
struct ClusterReady {
  std::vector<caf::strong_actor_ptr> ranks;      ///< By rank.
  std::vector<caf::strong_actor_ptr> processes;  ///< By rank.
};

/// Main thread -> cluster or conductor: The launcher of a node has ended or cannot be reached. The
/// cluster sends it back if the ranks train by then, for the conductor.
struct LauncherLost {
  std::int64_t node = 0;  ///< As the nodes were first numbered.
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OpenCluster)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ClusterReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LauncherLost)
