#include "actors/head/report/reporter_actor.hpp"

#include <caf/all.hpp>
#include <utility>

#include "actors/head/run_registry.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/system/supervision.hpp"
#include "base/text/log.hpp"

namespace train::actors {
namespace {

struct ReporterState {
  static inline const char* name = "reporter";
  std::shared_ptr<run::RunReport>
      report;  // First member: the framework would make a handle or a bool of `self`.
  bool failed = false;
  ConductorActor conductor;
  std::unique_ptr<kernels::Stream> stream;
};

using ReporterSelf = ReporterActor::stateful_pointer<ReporterState>;

/// Writes on the stream; a failure is sent back as a message.
template <class Write>
void write(ReporterSelf self, Write work) {
  self->state.stream->enqueue([me = caf::actor_cast<ReporterActor>(self),
                               report = self->state.report, work = std::move(work)] {
    // No exception may escape: the stream would drop later work, the end of the report included.
    try {
      work(*report);
    } catch (...) {
      caf::anon_send(me, ReportFailed{exception_text(std::current_exception())});
    }
  });
}

ReporterActor::behavior_type reporter_behavior(ReporterSelf self,
                                               std::shared_ptr<run::RunReport> report,
                                               StreamKind stream) {
  report_exceptions(self, "reporter", [] { return std::int64_t{-1}; });
  self->state.report = std::move(report);
  self->state.stream = make_stream(stream, "report");
  return {
      [self](const ConnectReporter& peers) { self->state.conductor = peers.conductor; },
      [self](const ReportFailed& message) {
        if (!std::exchange(self->state.failed, true)) {
          log_error(message.text);
          self->send(self->state.conductor, message);
        }
      },
      [self](const StepFinished& event) {
        write(self,
              [event, now_ns = steady_now_ns()](run::RunReport& to) { to.step(event, now_ns); });
      },
      [self](const EvaluationFinished& event) {
        write(self, [event](run::RunReport& to) { to.evaluation(event); });
      },
      [self](const TextsSampled& event) {
        write(self, [event](run::RunReport& to) { to.samples(event); });
      },
      [self](const CheckpointWritten& event) {
        write(self, [event](run::RunReport& to) { to.checkpoint(event); });
      },
      [self](const CheckpointFailed& event) {
        write(self, [event](run::RunReport& to) { to.checkpoint_failed(event); });
      },
      [](const CheckpointSkipped& event) {
        log_info(fmt::format("checkpoint_skipped step={} a newer one took its place", event.step));
      },
      [self](const StopRequested& event) {
        write(self, [event](run::RunReport& to) { to.stop_requested(event.signal); });
      },
      [self](const CloseReport&) {
        self->state.stream->enqueue([me = caf::actor_cast<ReporterActor>(self),
                                     conductor = self->state.conductor, to = self->state.report] {
          to->close();
          caf::send_as(me, conductor, ReportDrained{});
        });
      },
  };
}

}  // namespace

ReporterActor spawn_reporter(caf::actor_system& system, std::shared_ptr<run::RunReport> report,
                             StreamKind stream) {
  return system.spawn(reporter_behavior, std::move(report), stream);
}

void add_reporter(RunAssembly& run) {
  const HeadParts& parts = run.made_of();
  const ReporterActor actor =
      run.add("reporter", spawn_reporter(run.system(), parts.report, parts.report_stream));
  run.listen("reporter", actor);
  caf::anon_send(actor, ConnectReporter{run.conductor()});
}

ReporterActor spawn_listener(caf::actor_system& system, const caf::actor& waiter) {
  return system.spawn([waiter](ReporterActor::pointer self) -> ReporterActor::behavior_type {
    return {[](const ConnectReporter&) {},
            [](const ReportFailed&) {},
            [waiter](const StepFinished& event) { caf::anon_send(waiter, event); },
            [waiter](const EvaluationFinished& event) { caf::anon_send(waiter, event); },
            [](const TextsSampled&) {},
            [](const CheckpointWritten&) {},
            [](const CheckpointFailed&) {},
            [](const CheckpointSkipped&) {},
            [](const StopRequested&) {},
            [self](const CloseReport&) {
              const auto asker = caf::actor_cast<ConductorActor>(self->current_sender());
              self->send(asker, ReportDrained{});
            }};
  });
}

}  // namespace train::actors
