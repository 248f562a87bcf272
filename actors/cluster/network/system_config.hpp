#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/fwd.hpp>

#include "actors/cluster/network/event_loop.hpp"

namespace train::actors {

/// Actor system of a launcher or worker: one thread for handlers that never block, one for the
/// framework's messages, one for the network; a lost peer is noticed within four seconds, and every
/// message between processes is registered by name on both sides.
///
/// The framework itself never listens or connects: HeadListener and connect_to_head() give it
/// authenticated connections. Also ignores SIGPIPE in this process: a lost peer is an error of the
/// write.
class ControlConfig : public caf::actor_system_config {
 public:
  ControlConfig();

  /// Serves the system's connections. Lives as long as this object, longer than the system.
  [[nodiscard]] const EventLoop& loop() const { return loop_; }

 private:
  EventLoop loop_;
};

/// REQUIRES: `system` is configured by ControlConfig.
[[nodiscard]] const EventLoop& loop_of(const caf::actor_system& system);

}  // namespace train::actors
