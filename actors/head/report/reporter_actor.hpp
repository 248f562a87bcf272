#pragma once

#include <caf/fwd.hpp>
#include <memory>

#include "actors/handles.hpp"
#include "actors/head/report/run_report.hpp"
#include "actors/train/runtime/rank_runtime.hpp"

namespace train::actors {

/// Progress, metrics and TensorBoard: every event is written by the plain RunReport on the report
/// stream, in order. The first write that fails is told to the conductor (ReportFailed); the run
/// goes on. CloseReport -> ReportDrained when everything before it is written.
[[nodiscard]] ReporterActor spawn_reporter(caf::actor_system& system,
                                           std::shared_ptr<RunReport> report, StreamKind stream);

/// Takes the reporter's place where nothing is to be written: hands StepFinished and
/// EvaluationFinished on to `waiter`, in their order and before its RunFinished.
[[nodiscard]] ReporterActor spawn_listener(caf::actor_system& system, const caf::actor& waiter);

}  // namespace train::actors
