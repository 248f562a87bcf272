#include "actors/messages/message_types.hpp"

#include <caf/all.hpp>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/watch_messages.hpp"

namespace train::actors {
namespace {

template <class... Messages>
void add_messages(caf::actor_system_config& config) {
  (config.add_message_type<Messages>(message_name<Messages>().data()), ...);
}

}  // namespace

void register_messages(caf::actor_system_config& config) {
  // Commands, events, and messages of the cluster.
  add_messages<Command, WriteSnapshot, CommandFinished>(config);
  add_messages<StepFinished, EvaluationFinished, TokensSampled, TextsSampled, CheckpointWritten,
               ShardWritten, ShardOrder, ShardDone, CheckpointLocal, SaveFinished, CheckpointFailed,
               CheckpointSkipped, NonfiniteFound, RankStopped, RankFailed, ReportFailed,
               StopRequested, RunFinished, RankObserved, ObservedWait, ObservedStream,
               ObservedChannel, ObservedQueue, ObservationTaken>(config);
  add_messages<JoinCluster, Assignment, WorkerReady, WorkerFailed, Refused, WorkerExited, NodeSteps,
               NodeJoined, TakePosition, RestoreMemory, MemoryRestored, StartRanks, GenerationOver,
               NodeIdle, MemoryOrigin, Shutdown, RendezvousSet, RendezvousGet, RendezvousAnswer>(
      config);
}

}  // namespace train::actors
