#include "actors/cluster/network/system_config.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "actors/messages/message_types.hpp"
#include "actors/system/float_mode_hook.hpp"
#include "actors/system/run_queue.hpp"
#include "base/check.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{200};
// The framework checks at intervals: a silent peer counts as lost 4.1 to 4.9 s after its last
// message.
constexpr std::chrono::milliseconds kLostAfter{3200};

/// Tests in which no peer falls silent are patient with a machine that leaves none a core.
std::chrono::milliseconds lost_after() {
  return std::getenv("ACTORTRAIN_TEST_PATIENT") == nullptr ? kLostAfter : 100 * kLostAfter;
}

}  // namespace

ControlConfig::ControlConfig() {
  load<caf::io::middleman>();
  use_run_queue(*this);
  set("scheduler.max-threads", std::size_t{1});
  set("middleman.workers", std::size_t{0});  // Messages are small: the network thread deserialises
                                             // them.
  set("middleman.heartbeat-interval", caf::timespan(kHeartbeat));
  set("middleman.connection-timeout", caf::timespan(lost_after()));
  register_messages(*this);
  keep_float_mode(*this);
  std::signal(SIGPIPE, SIG_IGN);
}

const EventLoop& loop_of(const caf::actor_system& system) {
  const auto* const config = dynamic_cast<const ControlConfig*>(&system.config());
  TRAIN_CHECK(config != nullptr, "the system has no event loop");
  return config->loop();
}

}  // namespace train::actors
