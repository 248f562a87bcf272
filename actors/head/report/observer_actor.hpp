#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "actors/system/handles.hpp"
#include "actors/system/streams.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "run/report/run_report.hpp"
#include "run/report/run_status.hpp"

namespace train::actors {

/// Limits of the observer, and the receivers of its reports.
struct Observing {
  std::int64_t ranks = 0;
  std::uint32_t generation = 0;
  std::int64_t stall_ns = 5'000'000'000;         ///< watchdog.stall_s; 0: no stalls are logged.
  std::int64_t abort_after_ns = 0;               ///< watchdog.abort_after_s; 0: never aborts.
  std::shared_ptr<WaitTable> waits = {};         ///< Wait table of the launcher's actors.
  std::shared_ptr<run::RunReport> report = {};   ///< Source of the progress.
  std::shared_ptr<kernels::Stream> disk = {};    ///< Stream that publishes checkpoints.
  std::shared_ptr<run::StatusFile> status = {};  ///< None: no status is written.
  std::shared_ptr<run::EventLog> events = {};    ///< Receives stalls; may be null.
  ConductorActor conductor = {};                 ///< Ends the run; may be null.
};

/// Stores each rank's last report, and checks for stalls once per kWatchPeriod.
///
///   RankObserved -> kept, ObservationTaken
///   CheckStalls (itself) -> a stall (find_stall()) of at least stall_ns is logged as one line,
///     "stalled ...", once, or again when another rank has become the cause; its end as
///     "stall_over ...". Slow work on a stream that once ended by itself is only reported when it
///     lasts twice as long. The status is written on its own stream, unless the write before is
///     still under way.
///   RankLost -> the stall before the loss, if not yet logged
///   A stall of abort_after_ns -> RankFailed to the conductor, once: the end of the run, not the
///     loss of a rank, after which the ranks would be started again.
/// The run does not depend on the observer.
[[nodiscard]] ObserverActor spawn_observer(caf::actor_system& system, const Observing& observing,
                                           StreamKind stream);

}  // namespace train::actors
