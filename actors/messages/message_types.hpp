#pragma once

#include <caf/fwd.hpp>

namespace train::actors {

/// Registers every message that crosses processes under its source name, so that a system
/// configured with it can receive all of them. A new message needs its line in message_types.cpp.
void register_messages(caf::actor_system_config& config);

}  // namespace train::actors
