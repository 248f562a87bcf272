#include "actors/head/report/observer_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <map>
#include <set>
#include <utility>

#include "actors/head/run_registry.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_actors.hpp"
#include "base/text/log.hpp"
#include "run/directory/run_events.hpp"

namespace train::actors {
namespace {

constexpr std::int64_t kPeriod_ns = std::chrono::nanoseconds(kWatchPeriod).count();
/// Silence of a rank that counts as a stall before its process was found dead.
constexpr std::int64_t kSilentBeforeLoss_ns = 2'000'000'000;

struct ObserverState;
using ObserverSelf = ObserverActor::stateful_pointer<ObserverState>;

struct ObserverState {
  static inline const char* name = "observer";
  explicit ObserverState(ObserverSelf own) : self(own) {}

  Observing observing;

  [[nodiscard]] std::int64_t now_ns() const {
    return std::chrono::nanoseconds(self->clock().now().time_since_epoch()).count();
  }

  [[nodiscard]] bool commands_wait() const {
    const auto held = observing.waits ? observing.waits->held() : std::vector<WaitTable::Held>();
    return std::any_of(held.begin(), held.end(), [](const WaitTable::Held& one) {
      return one.what == std::string_view("commands") && one.in_use > 0;
    });
  }

  void hear(const RankObserved& observed) {
    if (observed.rank >= 0 && static_cast<std::size_t>(observed.rank) < ranks_.size()) {
      ranks_[static_cast<std::size_t>(observed.rank)] = {observed, now_ns()};
    }
  }

  void check() {
    const std::int64_t now = now_ns();
    forgive_own_pause(now);
    std::optional<run::Stall> found;
    if (observing.stall_ns > 0) {
      found = run::find_stall(ranks_, now, observing.stall_ns, commands_wait());
    }
    if (found && !found->work.empty()) {
      const auto usual = usual_.find(found->work);
      if (usual != usual_.end() && found->age_ns < 2 * usual->second) {
        found.reset();
      }
    }
    write_status(found, now);
    judge(std::move(found), now);
  }

  /// Restarts the silence of all ranks if this process itself was stopped or had no core.
  void forgive_own_pause(std::int64_t now) {
    const std::int64_t late_ns = now - std::exchange(checked_ns_, now) - kPeriod_ns;
    if (late_ns > kPeriod_ns / 2) {
      for (run::HeardRank& rank : ranks_) {
        rank.heard_ns = std::min(now, rank.heard_ns + late_ns);
      }
    }
  }

  void judge(std::optional<run::Stall> found, std::int64_t now) {
    if (!found) {
      end_stall(now);
      return;
    }
    if (!stall_) {
      stall_begin_ns_ = now - found->age_ns;
    }
    say(*found);
    end_run(*found, now);
  }

  void say(const run::Stall& stall) {
    const std::string cause = fmt::format("{} {}", stall.rank, stall.work);
    stall_ = stall;
    if (said_.insert(cause).second) {
      log_warning(fmt::format("stalled {}", stall.text));
      note({.kind = "stalled", .text = stall.text});
      show(stall.text);
    }
  }

  /// Ends the run on a stall that lasts too long: all ranks may be alive, so nothing else would.
  void end_run(const run::Stall& stall, std::int64_t now) {
    const std::int64_t lasted_ns = now - stall_begin_ns_;
    if (observing.abort_after_ns == 0 || lasted_ns < observing.abort_after_ns || aborted_ ||
        !observing.conductor) {
      return;
    }
    aborted_ = true;
    self->send(observing.conductor,
               RankFailed{.rank = static_cast<std::int32_t>(std::max<std::int64_t>(0, stall.rank)),
                          .text = fmt::format("stalled for {} s (watchdog.abort_after_s): {}",
                                              lasted_ns / 1'000'000'000, stall.text)});
  }

  void end_stall(std::int64_t now) {
    if (!stall_) {
      return;
    }
    const std::int64_t lasted_ns = now - stall_begin_ns_;
    log_info(fmt::format("stall_over went on after {:.1f} s: {}",
                         static_cast<double>(lasted_ns) * 1e-9, stall_->text));
    note({.kind = "stall_over",
          .text = stall_->text,
          .seconds = static_cast<double>(lasted_ns) * 1e-9});
    if (!stall_->work.empty()) {
      usual_[stall_->work] = lasted_ns;
    }
    stall_.reset();
    said_.clear();
    show({});
  }

  void show(const std::string& stall) const {
    if (observing.report) {
      observing.report->stalled(stall);
    }
  }

  /// Logs the stall before a loss: any rank silent until then, lost or not, had stalled the run.
  void rank_lost(const RankLost&) {
    const std::int64_t now = now_ns();
    const bool silence = std::any_of(
        ranks_.begin(), ranks_.end(),
        [now](const run::HeardRank& rank) { return now - rank.heard_ns >= kSilentBeforeLoss_ns; });
    if (observing.stall_ns == 0 || !silence) {
      return;
    }
    if (const auto found = run::find_stall(ranks_, now, kSilentBeforeLoss_ns, commands_wait())) {
      say(*found);
    }
  }

  void note(const run::RunEvent& event) {
    if (observing.events != nullptr) {
      stream_->enqueue([events = observing.events, event] { events->note(event); });
    }
  }

  void write_status(const std::optional<run::Stall>& stall, std::int64_t now) {
    if (!observing.status || std::exchange(writing_, true)) {
      return;  // A slow file system gets fewer statuses.
    }
    stream_->enqueue([me = caf::actor_cast<ObserverActor>(self), file = observing.status,
                      status = status(stall, now)] {
      const Status written = attempt([&] { return file->write(status); });
      caf::anon_send(me, StatusWritten{written.ok() ? "" : written.error().message});
    });
  }

  [[nodiscard]] run::RunStatus status(const std::optional<run::Stall>& stall,
                                      std::int64_t now) const {
    run::RunStatus status{.base = {},
                          .phase = "running",
                          .generation = observing.generation,
                          .ranks = observing.ranks,
                          .now_ns = now,
                          .heard = ranks_,
                          .stall = stall};
    if (observing.report) {
      status.progress = observing.report->progress();
    }
    for (const WaitTable::Wait& wait :
         observing.waits ? observing.waits->waiting() : std::vector<WaitTable::Wait>()) {
      status.waits.push_back({wait.who, wait.what, now - wait.since_ns});
    }
    for (const WaitTable::Held& held :
         observing.waits ? observing.waits->held() : std::vector<WaitTable::Held>()) {
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

  ObserverSelf self;
  std::vector<run::HeardRank> ranks_;  // First: the framework would make a leading bool of `self`.
  bool writing_ = false;               // The status before is still being written.
  bool write_failed_ = false;
  bool aborted_ = false;             // The run was told to end.
  std::optional<run::Stall> stall_;  // Current stall, already logged.
  std::set<std::string> said_;       // Ranks named in the stall.
  std::int64_t stall_begin_ns_ = 0;
  std::map<std::string, std::int64_t> usual_;  // Longest completed slow work, by name.
  std::int64_t checked_ns_ = 0;
  std::unique_ptr<kernels::Stream> stream_;
};

ObserverActor::behavior_type observer_behavior(ObserverSelf self, const Observing& observing,
                                               StreamKind stream) {
  report_exceptions(self, "observer", [] { return std::int64_t{-1}; });
  ObserverState* const state = &self->state;
  state->observing = observing;
  state->checked_ns_ = state->now_ns();
  state->ranks_.assign(static_cast<std::size_t>(observing.ranks),
                       {.last = {}, .heard_ns = state->checked_ns_});
  state->stream_ = make_stream(stream, "status");
  self->delayed_send(caf::actor_cast<ObserverActor>(self), kWatchPeriod, CheckStalls{});
  return {
      [state](const RankObserved& observed) {
        state->hear(observed);
        return ObservationTaken{};
      },
      [state](const CheckStalls& again) {
        state->self->delayed_send(caf::actor_cast<ObserverActor>(state->self), kWatchPeriod, again);
        state->check();
      },
      [state](const RankLost& lost) { state->rank_lost(lost); },
      [state](const StatusWritten& written) {
        state->writing_ = false;
        if (!written.failure.empty() && !std::exchange(state->write_failed_, true)) {
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

void add_observer(RunAssembly& run) {
  const HeadParts& parts = run.made_of();
  Observing observing = parts.observing;
  observing.waits = parts.waits;
  observing.report = parts.report;
  observing.disk = parts.disk;
  observing.conductor = run.conductor();
  run.add("observer", spawn_observer(run.system(), observing, parts.report_stream));
}

}  // namespace train::actors
