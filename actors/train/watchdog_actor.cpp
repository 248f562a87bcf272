#include "actors/train/rank_actors.hpp"

#include <unistd.h>

#include <array>
#include <caf/all.hpp>
#include <utility>

#include "actors/system/supervision.hpp"
#include "base/process/host_name.hpp"

namespace train::actors {
namespace {

struct WatchdogState {
  static inline const char* name = "watchdog";
  NamedActors parts;                // First: the framework would make a leading bool of `self`.
  bool sent = false;                // Sent and not answered.
  std::vector<std::int64_t> point;  // Progress at this actor's last look.
  std::int64_t since_ns = 0;        // Time at which this progress was reached.
  std::string host = host_name();
};

using WatchdogSelf = WatchdogActor::stateful_pointer<WatchdogState>;

/// Number of messages in an actor's mailbox. REQUIRES: its handlers run on this thread.
std::int64_t mailbox_length(const caf::actor& actor) {
  auto* local = dynamic_cast<caf::scheduled_actor*>(caf::actor_cast<caf::abstract_actor*>(actor));
  if (local == nullptr || local->mailbox().closed() || local->mailbox().blocked()) {
    return 0;  // Mailbox of an idle actor is empty.
  }
  return static_cast<std::int64_t>(local->mailbox().size());
}

void observe_mailboxes(const NamedActors& parts, RankObserved& observed) {
  for (const auto& [name, actor] : parts) {
    if (const std::int64_t length = mailbox_length(actor); length > 0) {
      observed.mailboxes.push_back({.what = name, .length = length, .limit = -1});
    }
  }
}

/// Progress of commands, channels and streams, in numbers that change with every advance.
std::vector<std::int64_t> point_of(const RankObserved& observed, std::int64_t now_ns) {
  std::vector<std::int64_t> point = {observed.begun, observed.finished};
  for (const ObservedChannel& channel : observed.channels) {
    point.insert(point.end(), {static_cast<std::int64_t>(channel.command),
                               static_cast<std::int64_t>(channel.index), channel.phase});
  }
  for (const ObservedStream& stream : observed.streams) {
    point.push_back(now_ns - stream.age_ns);
  }
  return point;
}

void note_progress(WatchdogState& state, RankObserved& observed, std::int64_t now_ns) {
  std::vector<std::int64_t> point = point_of(observed, now_ns);
  if (point != state.point) {
    state.point = std::move(point);
    state.since_ns = now_ns;
  }
  observed.unchanged_ns = now_ns - state.since_ns;
}

void observe_channels(const RankBoard::Snapshot& board, const RankRuntime& runtime,
                      std::int64_t now_ns, RankObserved& observed) {
  for (std::size_t which = 0; which < engine::kChannelCount; ++which) {
    ObservedChannel channel{.channel = static_cast<std::int32_t>(which),
                            .command = board.command ? board.command->sequence + 1 : 0};
    if (const auto& place = board.channels[which]) {
      channel.command = place->command.sequence;
      channel.index = place->op.index;
      channel.phase = static_cast<std::int32_t>(place->phase);
      channel.what = runtime.describe(*place);
      channel.age_ns = now_ns - place->since_ns;
      channel.from = place->from;
    }
    observed.channels.push_back(std::move(channel));
  }
}

void observe_streams(const RankRuntime& runtime, std::int64_t now_ns, RankObserved& observed) {
  const std::array<std::pair<const char*, const kernels::Stream*>, 5> streams = {
      {{"compute", runtime.compute.get()},
       {"reduce", runtime.reduce.get()},
       {"copy", runtime.copy.get()},
       {"input", runtime.input.get()},
       {"disk", runtime.disk.get()}}};
  for (const auto& [name, stream] : streams) {
    std::int64_t since_ns = 0;
    const kernels::Mark mark = stream != nullptr ? stream->current(since_ns) : kernels::Mark();
    if (since_ns > 0) {
      observed.streams.push_back({.name = name,
                                  .doing = runtime.describe(mark),
                                  .kind = runtime.describe({.what = mark.what, .unit = mark.unit}),
                                  .age_ns = now_ns - since_ns,
                                  .waits = stream->waits()});
    }
  }
}

WatchdogActor::behavior_type watchdog_behavior(WatchdogSelf self, const RankContext& context,
                                               const ObserverActor& observer, NamedActors parts) {
  report_exceptions(self, "watchdog", [] { return std::int64_t{-1}; });
  self->state.parts = std::move(parts);
  self->send(self, CheckStalls{});
  return {[self, context, observer](const CheckStalls& again) {
    self->delayed_send(caf::actor_cast<WatchdogActor>(self), kWatchPeriod, again);
    const std::int64_t now_ns = steady_now_ns();
    RankObserved observed = observe_rank(*context, now_ns);
    note_progress(self->state, observed, now_ns);
    if (self->state.sent) {
      return;
    }
    observed.pid = static_cast<std::int32_t>(::getpid());
    observed.host = self->state.host;
    observe_mailboxes(self->state.parts, observed);
    self->state.sent = true;
    // Without an answer the observer is gone, and with it the reader of all reports.
    self->request(observer, caf::infinite, std::move(observed))
        .then([self](const ObservationTaken&) { self->state.sent = false; },
              [](const caf::error&) {});
  }};
}

}  // namespace

RankObserved observe_rank(const RankRuntime& runtime, std::int64_t now_ns) {
  RankObserved observed{.rank = runtime.rank};
  const RankBoard::Snapshot board = runtime.board.look();
  observed.finished = board.finished;
  if (board.command) {
    observed.command = RankRuntime::describe(*board.command);
    observed.command_age_ns = now_ns - board.command->since_ns;
    observed.begun = static_cast<std::int64_t>(board.command->sequence);
  }
  for (const WaitTable::Wait& wait : runtime.waits.waiting()) {
    observed.waits.push_back(
        {.who = wait.who, .what = wait.what, .age_ns = now_ns - wait.since_ns});
  }
  observe_streams(runtime, now_ns, observed);
  if (runtime.transports.front()) {
    observe_channels(board, runtime, now_ns, observed);
  }
  observed.credits.push_back({.what = "commands queued", .length = board.queued, .limit = -1});
  for (const WaitTable::Held& held : runtime.waits.held()) {
    observed.credits.push_back({.what = held.what, .length = held.in_use, .limit = held.limit});
  }
  return observed;
}

WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                             ObserverActor observer, NamedActors parts) {
  return system.spawn(watchdog_behavior, context, std::move(observer), std::move(parts));
}

}  // namespace train::actors
