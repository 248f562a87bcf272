#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "actors/handles.hpp"
#include "actors/head/report/run_report.hpp"
#include "actors/head/report/run_status.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "actors/train/runtime/rank_runtime.hpp"

namespace train::actors {

/// What the observer watches for, and where it tells.
struct Observing {
  std::int64_t ranks = 0;
  std::uint32_t generation = 0;
  std::int64_t stall_ns = 5'000'000'000;       ///< watchdog.stall_s; 0: says nothing of stalls.
  std::int64_t abort_after_ns = 0;             ///< watchdog.abort_after_s; 0: ends nothing.
  std::shared_ptr<WaitBoard> waits = {};       ///< Of the launcher's actors.
  std::shared_ptr<RunReport> report = {};      ///< Knows the progress.
  std::shared_ptr<kernels::Stream> disk = {};  ///< That publishes checkpoints.
  std::shared_ptr<StatusFile> status = {};     ///< None: no status is written.
  std::shared_ptr<EventLog> events = {};       ///< Has stalls; none: nobody has.
  ConductorActor conductor = {};               ///< Ends the run; none: nobody does.
};

/// Keeps what every rank last said of itself, and looks at it once in kWatchPeriod.
///
///   RankObserved -> kept, ObservationTaken
///   CheckStalls (itself) -> a stall (find_stall()) that has lasted stall_ns is logged as one line,
///     "stalled ...", once, or again when somebody else has become the cause; its end as
///     "stall_over ...". Work on a stream that has ended by itself is no news until it lasts twice
///     as long. The status is written on a stream of its own, unless that still writes the one
///     before.
///   RankLost -> what was stalled before that, if it has not been said
///   A stall that has lasted abort_after_ns -> RankFailed to the conductor, once: not the loss of a
///     rank, which would be started again, but the end of the run.
/// Otherwise it only reports, and nobody depends on it.
[[nodiscard]] ObserverActor spawn_observer(caf::actor_system& system, const Observing& observing,
                                           StreamKind stream);

}  // namespace train::actors
