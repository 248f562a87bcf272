#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/fwd.hpp>

#include "actors/cluster/network/event_loop.hpp"

namespace train::actors {

/// The actor system of a launcher or worker: one thread for handlers that never wait, one for the
/// framework's messages, one for the network, a lost peer noticed within four seconds, and every
/// message that crosses processes known by its name on both sides.
///
/// The framework never listens or connects by itself here: HeadListener and connect_to_head() bring
/// it connections whose peers are known. Also ignores SIGPIPE in this process: a peer that has gone
/// is an error of the write, not the end.
class ControlConfig : public caf::actor_system_config {
 public:
  ControlConfig();

  /// Serves what the system is connected by. Lives as long as this, longer than the system.
  [[nodiscard]] const EventLoop& loop() const { return loop_; }

 private:
  EventLoop loop_;
};

/// REQUIRES: `system` is configured by ControlConfig.
[[nodiscard]] const EventLoop& loop_of(const caf::actor_system& system);

}  // namespace train::actors
