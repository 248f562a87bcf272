#pragma once

#include <caf/fwd.hpp>
#include <memory>

namespace train::actors {

/// Makes an actor system. A thread of it that cannot be started ends the process with a line, as
/// base/text/uncaught.hpp says: the framework cannot destroy a system that is half made.
[[nodiscard]] std::unique_ptr<caf::actor_system> make_actor_system(
    caf::actor_system_config& config);

/// Waits until every actor of `system` has ended; after a failed run for a few seconds only, as a
/// lack of memory may have lost what would wake one. Then false: `system` must not be destroyed.
[[nodiscard]] bool actors_end(caf::actor_system& system, bool failed);

/// Ends the process with "failed: <exception>" and kExitFailure. REQUIRES: an exception is handled.
[[noreturn]] void end_beside_actors();

/// Returns what `work` returns, which uses the actors of a system. An exception ends the process:
/// on its way to a handler it would destroy the system, which waits for the end of actors that wait
/// for one another.
template <class Work>
auto beside_actors(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    end_beside_actors();
  }
}

}  // namespace train::actors
