#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"

namespace train::actors {

/// Takes the reporter's place where nothing is to be written: hands StepFinished and
/// EvaluationFinished on to `waiter`, in their order and before its RunFinished.
[[nodiscard]] ReporterActor spawn_listener(caf::actor_system& system, const caf::actor& waiter);

}  // namespace train::actors
