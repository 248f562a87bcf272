#include "actors/head/observer_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <map>
#include <set>
#include <utility>

#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/supervision.hpp"
#include "actors/train/rank_actors.hpp"
#include "base/log.hpp"

namespace train::actors {
namespace {

constexpr std::int64_t kPeriod_ns = std::chrono::nanoseconds(kWatchPeriod).count();
/// Of a rank whose process turns out to be gone: silence before that was a stall.
constexpr std::int64_t kSilentBeforeLoss_ns = 2'000'000'000;

struct ObserverState {
  static inline const char* name = "observer";
  std::vector<HeardRank> ranks;  // first: the framework would make a leading bool of `self`
  bool writing = false;          // the status before
  bool write_failed = false;
  bool aborted = false;        // the run was told to end
  std::optional<Stall> stall;  // under way, and said
  std::set<std::string> said;  // who was named in it
  std::int64_t stall_begin_ns = 0;
  std::map<std::string, std::int64_t> usual;  // work that took long and ended, by its name
  std::int64_t checked_ns = 0;
  std::unique_ptr<kernels::Stream> stream;
};

using ObserverSelf = ObserverActor::stateful_pointer<ObserverState>;

struct Observer {
  ObserverSelf self;
  Observing observing;

  [[nodiscard]] ObserverState& state() const { return self->state; }
  [[nodiscard]] std::int64_t now_ns() const;
  [[nodiscard]] bool commands_wait() const;
  void hear(const RankObserved& observed) const;
  void check() const;
  void forgive_own_pause(std::int64_t now) const;
  void judge(std::optional<Stall> found, std::int64_t now) const;
  void say(const Stall& stall) const;
  void end_run(const Stall& stall, std::int64_t now) const;
  void end_stall(std::int64_t now) const;
  void rank_lost(const RankLost& lost) const;
  void write_status(const std::optional<Stall>& stall, std::int64_t now) const;
  [[nodiscard]] RunStatus status(const std::optional<Stall>& stall, std::int64_t now) const;
};

std::int64_t Observer::now_ns() const {
  return std::chrono::nanoseconds(self->clock().now().time_since_epoch()).count();
}

bool Observer::commands_wait() const {
  const auto held = observing.waits ? observing.waits->held() : std::vector<WaitBoard::Held>();
  return std::any_of(held.begin(), held.end(), [](const WaitBoard::Held& one) {
    return one.what == std::string_view("commands") && one.in_use > 0;
  });
}

void Observer::hear(const RankObserved& observed) const {
  if (observed.rank >= 0 && static_cast<std::size_t>(observed.rank) < state().ranks.size()) {
    state().ranks[static_cast<std::size_t>(observed.rank)] = {observed, now_ns()};
  }
}

/// If this process itself was stopped, or had no core, the others have not been silent.
void Observer::forgive_own_pause(std::int64_t now) const {
  const std::int64_t late_ns = now - std::exchange(state().checked_ns, now) - kPeriod_ns;
  if (late_ns > kPeriod_ns / 2) {
    for (HeardRank& rank : state().ranks) {
      rank.heard_ns = std::min(now, rank.heard_ns + late_ns);
    }
  }
}

void Observer::check() const {
  const std::int64_t now = now_ns();
  forgive_own_pause(now);
  std::optional<Stall> found;
  if (observing.stall_ns > 0) {
    found = StallChain(state().ranks, now).find(observing.stall_ns, commands_wait());
  }
  if (found && !found->work.empty()) {
    const auto usual = state().usual.find(found->work);
    if (usual != state().usual.end() && found->age_ns < 2 * usual->second) {
      found.reset();
    }
  }
  write_status(found, now);
  judge(std::move(found), now);
}

void Observer::judge(std::optional<Stall> found, std::int64_t now) const {
  if (!found) {
    end_stall(now);
    return;
  }
  if (!state().stall) {
    state().stall_begin_ns = now - found->age_ns;
  }
  say(*found);
  end_run(*found, now);
}

/// A stall that lasts too long. The ranks may all live: nothing else would end the run.
void Observer::end_run(const Stall& stall, std::int64_t now) const {
  const std::int64_t lasted_ns = now - state().stall_begin_ns;
  if (observing.abort_after_ns == 0 || lasted_ns < observing.abort_after_ns || state().aborted ||
      !observing.conductor) {
    return;
  }
  state().aborted = true;
  self->send(observing.conductor,
             RankFailed{.rank = static_cast<std::int32_t>(std::max<std::int64_t>(0, stall.rank)),
                        .text = fmt::format("stalled for {} s (watchdog.abort_after_s): {}",
                                            lasted_ns / 1'000'000'000, stall.text)});
}

void Observer::say(const Stall& stall) const {
  const std::string cause = fmt::format("{} {}", stall.rank, stall.work);
  state().stall = stall;
  if (state().said.insert(cause).second) {
    log_warning(fmt::format("stalled {}", stall.text));
  }
}

void Observer::end_stall(std::int64_t now) const {
  if (!state().stall) {
    return;
  }
  const std::int64_t lasted_ns = now - state().stall_begin_ns;
  log_info(fmt::format("stall_over went on after {:.1f} s: {}",
                       static_cast<double>(lasted_ns) * 1e-9, state().stall->text));
  if (!state().stall->work.empty()) {
    state().usual[state().stall->work] = lasted_ns;
  }
  state().stall.reset();
  state().said.clear();
}

/// Whoever is lost, or has noticed it: a rank that was silent before had stalled the run.
void Observer::rank_lost(const RankLost&) const {
  const std::int64_t now = now_ns();
  const bool silence = std::any_of(
      state().ranks.begin(), state().ranks.end(),
      [now](const HeardRank& rank) { return now - rank.heard_ns >= kSilentBeforeLoss_ns; });
  if (observing.stall_ns == 0 || !silence) {
    return;
  }
  if (const auto found =
          StallChain(state().ranks, now).find(kSilentBeforeLoss_ns, commands_wait())) {
    say(*found);
  }
}

RunStatus Observer::status(const std::optional<Stall>& stall, std::int64_t now) const {
  RunStatus status{.base = {},
                   .phase = "running",
                   .generation = observing.generation,
                   .ranks = observing.ranks,
                   .now_ns = now,
                   .heard = state().ranks,
                   .stall = stall};
  if (observing.report) {
    status.progress = observing.report->progress();
  }
  for (const WaitBoard::Wait& wait :
       observing.waits ? observing.waits->waiting() : std::vector<WaitBoard::Wait>()) {
    status.waits.push_back({wait.who, wait.what, now - wait.since_ns});
  }
  for (const WaitBoard::Held& held :
       observing.waits ? observing.waits->held() : std::vector<WaitBoard::Held>()) {
    status.credits.push_back({held.what, held.in_use, held.limit});
  }
  std::int64_t since_ns = 0;
  const kernels::Mark mark = observing.disk ? observing.disk->current(since_ns) : kernels::Mark();
  if (since_ns > 0) {
    const std::string doing =
        mark.step < 0 ? mark.what : fmt::format("{} of step {}", mark.what, mark.step + 1);
    status.streams.push_back({"publish", doing, mark.what, now - since_ns, false});
  }
  return status;
}

void Observer::write_status(const std::optional<Stall>& stall, std::int64_t now) const {
  if (!observing.status || std::exchange(state().writing, true)) {
    return;  // a slow file system gets fewer of them
  }
  state().stream->enqueue([me = caf::actor_cast<ObserverActor>(self), file = observing.status,
                           status = status(stall, now)] {
    const Status written = attempt([&] { return file->write(status); });
    caf::anon_send(me, StatusWritten{written.ok() ? "" : written.error().message});
  });
}

ObserverActor::behavior_type observer_behavior(ObserverSelf self, const Observing& observing,
                                               StreamKind stream) {
  report_exceptions(self, "observer", [] { return std::int64_t{-1}; });
  const Observer observer{self, observing};
  self->state.checked_ns = observer.now_ns();
  self->state.ranks.assign(static_cast<std::size_t>(observing.ranks),
                           {.last = {}, .heard_ns = self->state.checked_ns});
  self->state.stream = stream == StreamKind::threads ? kernels::make_thread_stream("status", 1)
                                                     : kernels::make_inline_stream(1);
  self->delayed_send(caf::actor_cast<ObserverActor>(self), kWatchPeriod, CheckStalls{});
  return {
      [observer](const RankObserved& observed) {
        observer.hear(observed);
        return ObservationTaken{};
      },
      [observer](const CheckStalls& again) {
        observer.self->delayed_send(caf::actor_cast<ObserverActor>(observer.self), kWatchPeriod,
                                    again);
        observer.check();
      },
      [observer](const RankLost& lost) { observer.rank_lost(lost); },
      [self](const StatusWritten& written) {
        self->state.writing = false;
        if (!written.failure.empty() && !std::exchange(self->state.write_failed, true)) {
          log_warning(fmt::format("status_not_written {}", written.failure));
        }
      },
  };
}

}  // namespace

ObserverActor spawn_observer(caf::actor_system& system, const Observing& observing,
                             StreamKind stream) {
  return system.spawn(observer_behavior, observing, stream);
}

}  // namespace train::actors
