#pragma once

#include <caf/fwd.hpp>

namespace train::actors {

/// Every message that crosses processes, under its name in the source: a system that is configured
/// so understands them all. A new one has its line in message_types.cpp.
void register_messages(caf::actor_system_config& config);

}  // namespace train::actors
