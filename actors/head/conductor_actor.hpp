#pragma once

#include <caf/fwd.hpp>
#include <chrono>
#include <string>

#include "actors/system/handles.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "run/program/run_program.hpp"

namespace train::actors {

/// Issues the run's numbered commands, `kCommandWindow` of them ahead, so that a rank never waits
/// for its next command.
///
///   running --StopRequested--> saving (no further step; snapshot; stop)
///   running --StepFinished(non-finite)--> searching (FindNonfinite; stop; nothing is saved)
///   any --RankFailed--> over (exit 1, or the code that came with it)
///   any --NodesReturned--> over (the ranks start again with theirs)
///   any --RankStopped and every command finished--> reports close --> RunFinished to the waiter
/// Saves: TakeSnapshot carries the decisions of SaveSchedule; each SaveFinished grants the waiting
/// save (WriteSnapshot to all ranks and the index). The run is over when no save is under way or
/// waits, or when the last one has had its time: it then ends with exit code 1 and reports each
/// location. A failed save does not end the run; it ends with exit code 1 unless a later save
/// succeeded.
inline constexpr std::size_t kCommandWindow = 2;

/// Limits on the wait for saves at the end of a run.
struct SaveDrain {
  std::chrono::seconds time{300};   ///< Time after the last command to publish checkpoints.
  std::string local_location = {};  ///< May have unpublished checkpoints; or empty.
};

[[nodiscard]] ConductorActor spawn_conductor(caf::actor_system& system, WaitTable& waits,
                                             const run::RunProgram::Options& program,
                                             const SaveDrain& drain = {});

}  // namespace train::actors
