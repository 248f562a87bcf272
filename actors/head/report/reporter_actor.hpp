#pragma once

#include <caf/fwd.hpp>
#include <memory>

#include "actors/system/handles.hpp"
#include "actors/system/streams.hpp"
#include "run/report/run_report.hpp"

namespace train::actors {

/// Reporter of progress, metrics and TensorBoard: the plain RunReport writes every event on the
/// report stream, in order. The first failed write is sent to the conductor (ReportFailed); the run
/// continues. CloseReport -> ReportDrained when all events before it are written.
[[nodiscard]] ReporterActor spawn_reporter(caf::actor_system& system,
                                           std::shared_ptr<run::RunReport> report,
                                           StreamKind stream);

/// Replaces the reporter if nothing is to be written: forwards StepFinished and EvaluationFinished
/// to `waiter`, in order and before its RunFinished.
[[nodiscard]] ReporterActor spawn_listener(caf::actor_system& system, const caf::actor& waiter);

}  // namespace train::actors
