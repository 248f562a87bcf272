#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <string>

#include "actors/messages/cluster_messages.hpp"

namespace train::actors {

/// Start-up on the head: accepts one worker per rank, hands each its assignment, and tells the
/// waiter when all are ready.
///
///   OpenCluster, once -> workers are accepted from here on.
///   JoinCluster -> Assignment, or Refused: another version of the program, a rank that does not
///     exist or has already joined, a start-up that has not begun or is over.
///   WorkerReady of all ranks -> ClusterReady to the waiter. Data, a plan or a kernel set that are
///   not
///     the head's -> RunFinished (exit 2), which names the rank.
///   WorkerFailed, WorkerExited, the loss of a worker, LauncherLost or StopRequested before that ->
///     RunFinished to the waiter, according to head_table.hpp.
///   NodeJoined, MemoryRestored and NodeIdle are forwarded to the waiter, NodeJoined with its
///   sender.
/// After ClusterReady: WorkerExited (of another node's launcher) goes to the conductor as
/// RankFailed; LauncherLost and StopRequested go back to the waiter, for the conductor.
struct ClusterOptions {
  std::string version;
  std::string kernel_set;
  caf::actor waiter;
};
[[nodiscard]] caf::actor spawn_cluster(caf::actor_system& system, const ClusterOptions& options);

}  // namespace train::actors
