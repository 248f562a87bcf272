#include "actors/messages/message_types.hpp"

#include <caf/all.hpp>
#include <string>
#include <string_view>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/watch_messages.hpp"

namespace train::actors {
namespace {

/// As the source names it, without its namespace.
template <class Message>
std::string name_of() {
  const std::string_view text = __PRETTY_FUNCTION__;  // "... [with Message = train::actors::X; ..."
  constexpr std::string_view before = "Message = train::actors::";
  const std::size_t begin = text.find(before) + before.size();
  return std::string(text.substr(begin, text.find_first_of(";]", begin) - begin));
}

template <class... Messages>
void add_messages(caf::actor_system_config& config) {
  (config.add_message_type<Messages>(name_of<Messages>()), ...);
}

}  // namespace

void register_messages(caf::actor_system_config& config) {
  // Commands, events, and what the cluster says.
  add_messages<Command, WriteSnapshot, CommandFinished>(config);
  add_messages<StepFinished, EvaluationFinished, CheckpointWritten, ShardWritten, ShardOrder,
               ShardDone, CheckpointLocal, SaveFinished, CheckpointFailed, CheckpointSkipped,
               NonfiniteFound, RankStopped, RankFailed, ReportFailed, StopRequested, RunFinished,
               RankObserved, ObservedWait, ObservedStream, ObservedChannel, ObservedQueue,
               ObservationTaken>(config);
  add_messages<JoinCluster, Assignment, WorkerReady, WorkerFailed, Refused, WorkerExited, NodeSteps,
               NodeJoined, TakePosition, RestoreMemory, MemoryRestored, StartRanks, GenerationOver,
               NodeIdle, MemoryOrigin, GoAway, RendezvousSet, RendezvousGet, RendezvousAnswer>(
      config);
}

}  // namespace train::actors
