#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/run_program.hpp"
#include "actors/wait_board.hpp"

namespace train::actors {

/// Emits the run's numbered commands and keeps `kCommandWindow` of them ahead, so that a rank never
/// waits for its next command.
///
///   running --StopRequested--> saving (no further step; snapshot; stop)
///   running --StepFinished(poisoned)--> searching (FindNonfinite; stop; nothing is saved)
///   any --RankFailed--> over (exit 1, or the code that came with it)
///   any --RankStopped and every command finished--> reports close --> RunFinished to the waiter
/// A failed save does not end the run; it ends with exit code 1 unless a later save succeeded.
inline constexpr std::size_t kCommandWindow = 2;

[[nodiscard]] ConductorActor spawn_conductor(caf::actor_system& system, WaitBoard& waits,
                                             const RunProgram::Options& program);

}  // namespace train::actors
