#include "actors/cluster/network/system_config.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <chrono>
#include <csignal>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/watch_messages.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{200};
// The framework looks at it once in a while: a silent peer is given up 4.1 to 4.9 s after its last
// word.
constexpr std::chrono::milliseconds kLostAfter{3200};

void add_commands(caf::actor_system_config& config) {
  config.add_message_type<Command>("Command");
  config.add_message_type<WriteSnapshot>("WriteSnapshot");
  config.add_message_type<CommandFinished>("CommandFinished");
}

void add_events(caf::actor_system_config& config) {
  config.add_message_type<StepFinished>("StepFinished");
  config.add_message_type<EvaluationFinished>("EvaluationFinished");
  config.add_message_type<CheckpointWritten>("CheckpointWritten");
  config.add_message_type<ShardWritten>("ShardWritten");
  config.add_message_type<ShardOrder>("ShardOrder");
  config.add_message_type<ShardDone>("ShardDone");
  config.add_message_type<CheckpointLocal>("CheckpointLocal");
  config.add_message_type<SaveFinished>("SaveFinished");
  config.add_message_type<CheckpointFailed>("CheckpointFailed");
  config.add_message_type<CheckpointSkipped>("CheckpointSkipped");
  config.add_message_type<NonfiniteFound>("NonfiniteFound");
  config.add_message_type<RankStopped>("RankStopped");
  config.add_message_type<RankFailed>("RankFailed");
  config.add_message_type<ReportFailed>("ReportFailed");
  config.add_message_type<StopRequested>("StopRequested");
  config.add_message_type<RunFinished>("RunFinished");
  config.add_message_type<RankObserved>("RankObserved");
  config.add_message_type<ObservedWait>("ObservedWait");
  config.add_message_type<ObservedStream>("ObservedStream");
  config.add_message_type<ObservedChannel>("ObservedChannel");
  config.add_message_type<ObservedQueue>("ObservedQueue");
  config.add_message_type<ObservationTaken>("ObservationTaken");
}

void add_cluster(caf::actor_system_config& config) {
  config.add_message_type<JoinCluster>("JoinCluster");
  config.add_message_type<Assignment>("Assignment");
  config.add_message_type<WorkerReady>("WorkerReady");
  config.add_message_type<WorkerFailed>("WorkerFailed");
  config.add_message_type<Refused>("Refused");
  config.add_message_type<WorkerExited>("WorkerExited");
  config.add_message_type<NodeJoined>("NodeJoined");
  config.add_message_type<TakePosition>("TakePosition");
  config.add_message_type<RestoreMemory>("RestoreMemory");
  config.add_message_type<MemoryRestored>("MemoryRestored");
  config.add_message_type<StartRanks>("StartRanks");
  config.add_message_type<GenerationOver>("GenerationOver");
  config.add_message_type<NodeIdle>("NodeIdle");
  config.add_message_type<GoAway>("GoAway");
  config.add_message_type<RendezvousSet>("RendezvousSet");
  config.add_message_type<RendezvousDone>("RendezvousDone");
  config.add_message_type<RendezvousGet>("RendezvousGet");
  config.add_message_type<RendezvousValue>("RendezvousValue");
  config.add_message_type<RendezvousRefused>("RendezvousRefused");
  config.add_message_type<RendezvousForget>("RendezvousForget");
}

}  // namespace

ControlConfig::ControlConfig() {
  load<caf::io::middleman>();
  // "sharing" sleeps where "stealing" would poll; the compute threads keep the cores.
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", std::size_t{1});
  set("middleman.workers", std::size_t{0});  // messages are small: the network thread reads them
  set("middleman.heartbeat-interval", caf::timespan(kHeartbeat));
  set("middleman.connection-timeout", caf::timespan(kLostAfter));
  add_commands(*this);
  add_events(*this);
  add_cluster(*this);
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace train::actors
