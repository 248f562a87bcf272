#include "actors/head/step_listener.hpp"

#include <caf/all.hpp>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"

namespace train::actors {

ReporterActor spawn_listener(caf::actor_system& system, const caf::actor& waiter) {
  return system.spawn([waiter](ReporterActor::pointer self) -> ReporterActor::behavior_type {
    return {[](const ConnectReporter&) {},
            [](const ReportFailed&) {},
            [waiter](const StepFinished& event) { caf::anon_send(waiter, event); },
            [waiter](const EvaluationFinished& event) { caf::anon_send(waiter, event); },
            [](const CheckpointWritten&) {},
            [](const CheckpointFailed&) {},
            [](const CheckpointSkipped&) {},
            [self](const CloseReport&) {
              const auto asker = caf::actor_cast<ConductorActor>(self->current_sender());
              caf::anon_send(asker, ReportDrained{});
            }};
  });
}

}  // namespace train::actors
