#pragma once

#include <caf/fwd.hpp>

namespace train::actors {

/// Makes the threads of a system with this configuration take actors from one queue, which sleeps
/// while it is empty: CAF's "stealing" would poll, and the compute threads need the cores. The
/// queue asks for no memory while it holds at most 4,096 actors: CAF marks an actor as awake before
/// it is queued, so that one that found no place would never run again. If there is none, the
/// process ends by std::terminate.
void use_run_queue(caf::actor_system_config& config);

}  // namespace train::actors
