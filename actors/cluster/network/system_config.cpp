#include "actors/cluster/network/system_config.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <chrono>
#include <csignal>
#include <string>
#include <string_view>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "base/check.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{200};
// The framework looks at it once in a while: a silent peer is given up 4.1 to 4.9 s after its last
// word.
constexpr std::chrono::milliseconds kLostAfter{3200};

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

ControlConfig::ControlConfig() {
  load<caf::io::middleman>();
  // "sharing" sleeps where "stealing" would poll; the compute threads keep the cores.
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", std::size_t{1});
  set("middleman.workers", std::size_t{0});  // messages are small: the network thread reads them
  set("middleman.heartbeat-interval", caf::timespan(kHeartbeat));
  set("middleman.connection-timeout", caf::timespan(kLostAfter));
  // Commands, events, and what the cluster says.
  add_messages<Command, WriteSnapshot, CommandFinished>(*this);
  add_messages<StepFinished, EvaluationFinished, CheckpointWritten, ShardWritten, ShardOrder,
               ShardDone, CheckpointLocal, SaveFinished, CheckpointFailed, CheckpointSkipped,
               NonfiniteFound, RankStopped, RankFailed, ReportFailed, StopRequested, RunFinished,
               RankObserved, ObservedWait, ObservedStream, ObservedChannel, ObservedQueue,
               ObservationTaken>(*this);
  add_messages<JoinCluster, Assignment, WorkerReady, WorkerFailed, Refused, WorkerExited, NodeSteps,
               NodeJoined, TakePosition, RestoreMemory, MemoryRestored, StartRanks, GenerationOver,
               NodeIdle, MemoryOrigin, GoAway, RendezvousSet, RendezvousGet, RendezvousAnswer>(
      *this);
  std::signal(SIGPIPE, SIG_IGN);
}

const EventLoop& loop_of(const caf::actor_system& system) {
  const auto* const config = dynamic_cast<const ControlConfig*>(&system.config());
  TRAIN_CHECK(config != nullptr, "the system has no event loop");
  return config->loop();
}

}  // namespace train::actors
