#include "actors/system/actor_systems.hpp"

#include <fmt/format.h>

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "base/exit_codes.hpp"
#include "base/process/joined_thread.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "base/text/uncaught.hpp"

namespace train::actors {

std::unique_ptr<caf::actor_system> make_actor_system(caf::actor_system_config& config) {
  std::unique_ptr<caf::actor_system> made;
  // On a thread without handlers an exception ends the process where it is thrown, and nothing is
  // destroyed.
  JoinedThread([&] { made = std::make_unique<caf::actor_system>(config); }).join();
  return made;
}

bool actors_end(caf::actor_system& system, bool failed) {
  if (!failed) {
    system.await_all_actors_done();
    return true;
  }
  // An actor may wait for a message from a failed one, which never sent it.
  constexpr std::chrono::seconds kPatience{5};
  constexpr std::chrono::milliseconds kBetweenLooks{2};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (system.registry().running() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return system.registry().running() == 0;
}

void end_beside_actors() {
  log_error(fmt::format("failed: {}", exception_text(std::current_exception())));
  finish_output();
  std::_Exit(kExitFailure);
}

}  // namespace train::actors
