#pragma once

#include <caf/fwd.hpp>
#include <chrono>
#include <string>

#include "actors/handles.hpp"
#include "actors/head/run_program.hpp"
#include "actors/train/boards/rank_board.hpp"

namespace train::actors {

/// Emits the run's numbered commands and keeps `kCommandWindow` of them ahead, so that a rank never
/// waits for its next command.
///
///   running --StopRequested--> saving (no further step; snapshot; stop)
///   running --StepFinished(non-finite)--> searching (FindNonfinite; stop; nothing is saved)
///   any --RankFailed--> over (exit 1, or the code that came with it)
///   any --NodesReturned--> over (the ranks start again with theirs)
///   any --RankStopped and every command finished--> reports close --> RunFinished to the waiter
/// Saves: a TakeSnapshot says what SaveSchedule says, every SaveFinished grants the one that waits
/// (WriteSnapshot to all ranks and the index). The run is over when no save is under way or waits,
/// or when the last one has had its time: then it ends with exit code 1 and says what is where.
/// A failed save does not end the run; it ends with exit code 1 unless a later save succeeded.
inline constexpr std::size_t kCommandWindow = 2;

/// What the end of a run waits for.
struct SaveDrain {
  std::chrono::seconds time{300};   ///< After the last command, for checkpoints to be published.
  std::string local_location = {};  ///< Where a whole one may be that is not; empty: nowhere.
};

[[nodiscard]] ConductorActor spawn_conductor(caf::actor_system& system, WaitBoard& waits,
                                             const RunProgram::Options& program,
                                             const SaveDrain& drain = {});

}  // namespace train::actors
