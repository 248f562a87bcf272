#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/index_actor.hpp"
#include "actors/rank_actor.hpp"
#include "actors/rank_runtime.hpp"
#include "actors/report/run_report.hpp"
#include "actors/run_program.hpp"
#include "actors/snapshot_actor.hpp"

namespace train::actors {

/// What the actors of a run are made of.
struct TrainingParts {
  RankContext context;
  std::shared_ptr<RunReport> report;
  StreamKind report_stream = StreamKind::threads;
  WriteCheckpoint write;
  RecordCheckpoint record;
  RunProgram::Options program = {};
  RankReporting reporting = {};
  std::int64_t stall_ns = 30'000'000'000;
};

/// Handles of a wired run: the conductor for signals, all of them for the shutdown.
struct TrainingActors {
  ConductorActor conductor;
  std::vector<caf::actor> all;
};

/// Spawns and wires all actors of a one-rank run; the first command is on its way on return.
/// `waiter` receives RunFinished.
[[nodiscard]] TrainingActors start_training(caf::actor_system& system, const TrainingParts& parts,
                                            const caf::actor& waiter);

/// Stops every actor and forgets them.
void stop_training(TrainingActors& actors);

}  // namespace train::actors
