#pragma once

#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <string>
#include <vector>

// Between the head, the launchers of other nodes and the workers: joining, finding each other,
// leaving. All of it crosses processes.
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

/// Launcher of another node -> cluster -> main thread: The first message of a node in a generation:
/// none of its ranks runs. Answered by StartRanks when all nodes are there, or by GenerationOver.
/// Nodes are called by their number in the Slurm step, whether or not all of them still take part.
struct NodeJoined {
  std::int32_t node = 0;
  /// Of the snapshots in memory of all the node's ranks, the newest first.
  std::vector<std::int64_t> own_steps;
  std::vector<std::int64_t> buddy_steps;  ///< The same of the node before, whose buddy this one is.
  std::int64_t earlier_step = -1;         ///< NodeSteps::earlier.
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

/// Worker -> rendezvous: This key has this value, once and for all. Answered by RendezvousDone or
/// RendezvousRefused. The bytes are a string because the framework checks a string's length before
/// it makes room for it, and a vector's after.
struct RendezvousSet {
  std::string key;
  std::string bytes;
};

/// Rendezvous -> worker: The key of RendezvousSet has its value.
struct RendezvousDone {
  std::string key;
};

/// Worker -> rendezvous: What is the value of this key? Answered by RendezvousValue as soon as the
/// key is set, or by RendezvousRefused.
struct RendezvousGet {
  std::string key;
};

/// Rendezvous -> worker: The value that RendezvousGet asked for.
struct RendezvousValue {
  std::string key;
  std::string bytes;
};

/// Rendezvous -> worker: The key cannot be set, or will not be.
struct RendezvousRefused {
  std::string key;
  std::string text;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JoinCluster& x) {
  return f(caf::meta::type_name("JoinCluster"), x.rank, x.host, x.version);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Refused& x) {
  return f(caf::meta::type_name("Refused"), x.text, x.over);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerExited& x) {
  return f(caf::meta::type_name("WorkerExited"), x.rank, x.text, x.killed);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, NodeJoined& x) {
  return f(caf::meta::type_name("NodeJoined"), x.node, x.own_steps, x.buddy_steps, x.earlier_step,
           x.snapshots);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartRanks& x) {
  return f(caf::meta::type_name("StartRanks"), x.memory_step, x.earlier, x.buddy);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TakePosition& x) {
  return f(caf::meta::type_name("TakePosition"), x.node, x.nodes, x.ranks, x.memory_step,
           x.earlier);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RestoreMemory& x) {
  return f(caf::meta::type_name("RestoreMemory"), x.step, x.give_to, x.take);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, MemoryRestored& x) {
  return f(caf::meta::type_name("MemoryRestored"), x.node, x.failure);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, GenerationOver& x) {
  return f(caf::meta::type_name("GenerationOver"), x.again, x.exit_code, x.without);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, NodeIdle& x) {
  return f(caf::meta::type_name("NodeIdle"), x.node);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, GoAway& x) {
  return f(caf::meta::type_name("GoAway"), x.exit_code);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RendezvousSet& x) {
  return f(caf::meta::type_name("RendezvousSet"), x.key, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RendezvousDone& x) {
  return f(caf::meta::type_name("RendezvousDone"), x.key);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RendezvousGet& x) {
  return f(caf::meta::type_name("RendezvousGet"), x.key);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RendezvousValue& x) {
  return f(caf::meta::type_name("RendezvousValue"), x.key, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RendezvousRefused& x) {
  return f(caf::meta::type_name("RendezvousRefused"), x.key, x.text);
}
}  // namespace train::actors
