#include "actors/watchdog_actor.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <chrono>

#include "actors/messages/report_messages.hpp"
#include "actors/supervision.hpp"
#include "engine/base/log.hpp"

namespace train::actors {
namespace {

struct WatchdogState {
  static inline const char* name = "watchdog";
  bool reported = false;  // of the stall under way
};

using WatchdogSelf = WatchdogActor::stateful_pointer<WatchdogState>;

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

WatchdogActor::behavior_type watchdog_behavior(WatchdogSelf self, RankContext context,
                                               std::int64_t stall_ns) {
  report_exceptions(self, "watchdog", [] { return std::int64_t{-1}; });
  self->delayed_send(caf::actor_cast<WatchdogActor>(self), std::chrono::seconds(1), CheckStalls{});
  return {[self, context, stall_ns](const CheckStalls& again) {
    const std::string report = stall_report(*context, stall_ns, steady_now_ns());
    if (!report.empty() && !self->state.reported) {
      log_warning(report);
    }
    self->state.reported = !report.empty();
    self->delayed_send(caf::actor_cast<WatchdogActor>(self), std::chrono::seconds(1), again);
  }};
}

}  // namespace

std::string stall_report(const RankRuntime& runtime, std::int64_t stall_ns, std::int64_t now_ns) {
  std::string text;
  bool stalled = false;
  const auto add = [&](const std::string& what, std::int64_t since_ns) {
    stalled = stalled || now_ns - since_ns > stall_ns;
    text += fmt::format("{}{} for {:.1f} s", text.empty() ? "" : "; ", what,
                        seconds(now_ns - since_ns));
  };
  for (const WaitBoard::Wait& wait : runtime.waits.waiting()) {
    add(fmt::format("{} waits for {}", wait.who, wait.what), wait.since_ns);
  }
  const auto add_stream = [&](const char* name, const kernels::Stream& stream) {
    std::int64_t since_ns = 0;
    const kernels::Mark mark = stream.current(since_ns);
    if (since_ns > 0) {
      add(fmt::format("stream {} is in {}", name, runtime.describe(mark)), since_ns);
    }
  };
  add_stream("compute", *runtime.compute);
  add_stream("copy", *runtime.copy);
  add_stream("input", *runtime.input);
  add_stream("disk", *runtime.disk);
  if (runtime.reduce) {
    add_stream("reduce", *runtime.reduce);
  }
  return stalled ? fmt::format("stalled rank={} {}", runtime.rank, text) : std::string();
}

WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                             std::int64_t stall_ns) {
  return system.spawn(watchdog_behavior, context, stall_ns);
}

}  // namespace train::actors
