#include "actors/head/conductor_actor.hpp"
#include "base/exit_codes.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/head/rank_agreement.hpp"
#include "actors/head/save_schedule.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/supervision.hpp"
#include "base/log.hpp"

namespace train::actors {
namespace {

// A rank that lost another one waits this long for the other's own report.
constexpr std::chrono::milliseconds kCauseTime{300};

/// On the launcher's board.
struct Notes {
  WaitBoard::Line wait;
  WaitBoard::Credits commands;
  WaitBoard::Credits saves;
};

struct ConductorState {
  static inline const char* name = "conductor";
  std::optional<RunProgram> program;
  ConnectConductor peers;
  std::optional<Notes> notes;
  // Commands given out and not finished (stop not counted): ranks that still have to.
  std::map<std::uint64_t, std::size_t> outstanding;
  RankAgreement agreement;
  SaveDrain drain;
  SaveSchedule saves;
  std::optional<std::int64_t> local;      // the save under way is whole in the local place
  std::optional<std::int64_t> published;  // the newest
  bool draining = false;
  std::int64_t steps_finished = 0;
  bool nonfinite = false;
  std::size_t ranks_stopped = 0;
  bool closing = false;
  bool reporter_gone = false;
  bool told = false;  // the waiter has its RunFinished
  std::optional<std::int32_t> signal;
  std::string save_failure;  // of the newest save; empty when it succeeded
  std::string report_failure;
  std::string nonfinite_text;
  std::optional<RunFinished> outcome;     // fixed by a rank's failure
  std::optional<RankFailed> consequence;  // a rank that lost another one; its cause may follow
};

using ConductorSelf = ConductorActor::stateful_pointer<ConductorState>;

struct Conductor {
  ConductorSelf self;

  [[nodiscard]] ConductorState& state() const { return self->state; }
  void pump() const;
  void note_credits() const;
  void give(Command command) const;
  void grant(std::optional<std::int64_t> step) const;
  void announce_skipped() const;
  void save_finished(std::int64_t step) const;
  void drain_over() const;
  template <class Message>
  void tell_ranks(const Message& message) const;
  template <class Message>
  void tell_index(const Message& message) const;
  void step_heard(const StepFinished& event) const;
  void step_finished(const StepFinished& event) const;
  void stop_requested(std::int32_t signal) const;
  void finish_if_done() const;
  void close_report() const;
  void tell() const;
  void rank_failed(const RankFailed& event) const;
  void conclude(const RankFailed& event) const;
  void end_for_nodes() const;
  void part_down(const caf::down_msg& down) const;
  [[nodiscard]] RunFinished outcome() const;
};

template <class Message>
void Conductor::tell_ranks(const Message& message) const {
  for (const RankActor& rank : state().peers.ranks) {
    self->send(rank, message);
  }
}

template <class Message>
void Conductor::tell_index(const Message& message) const {
  if (state().peers.index) {
    self->send(state().peers.index, message);
  }
}

void Conductor::give(Command command) const {
  if (command.kind != engine::CommandKind::stop) {
    state().outstanding[command.sequence] = state().peers.ranks.size();
  }
  if (command.kind != engine::CommandKind::snapshot) {
    return tell_ranks(command);
  }
  const SaveSchedule::Take take = state().saves.take(command.step);
  command.replaces = take.replaces;
  command.write_now = take.write_now;
  tell_ranks(command);
  if (take.write_now) {
    tell_index(WriteSnapshot{command.step});
  }
  announce_skipped();
}

/// Every rank saves the same step next.
void Conductor::grant(std::optional<std::int64_t> step) const {
  if (step) {
    tell_index(WriteSnapshot{*step});
    tell_ranks(WriteSnapshot{*step});
  }
}

void Conductor::announce_skipped() const {
  for (const std::int64_t step : state().saves.skipped()) {
    self->send(state().peers.reporter, CheckpointSkipped{step});
    tell_index(CheckpointSkipped{step});
  }
}

void Conductor::save_finished(std::int64_t step) const {
  grant(state().saves.over(step));
  note_credits();
  announce_skipped();
  finish_if_done();
}

void Conductor::note_credits() const {
  state().notes->commands.in_use(static_cast<std::int64_t>(state().outstanding.size()));
  state().notes->saves.in_use(state().saves.under_way() ? 1 : 0);
}

void Conductor::pump() const {
  while (state().outstanding.size() < kCommandWindow) {
    const auto command = state().program->next();
    if (!command) {
      break;
    }
    give(*command);
  }
  note_credits();
  state().notes->wait.end();  // each finished command starts the wait anew
  if (!state().outstanding.empty()) {
    state().notes->wait.begin("the ranks to finish a command", state().steps_finished);
  }
  finish_if_done();
}

// Every rank has computed the same loss and norm, or something is broken beyond repair.
void Conductor::step_heard(const StepFinished& event) const {
  const auto heard = state().agreement.hear(event, state().peers.ranks.size());
  if (!heard) {
    conclude({event.rank, heard.error().message, kExitFailure});
  } else if (*heard) {
    step_finished(**heard);
  }
}

void Conductor::step_finished(const StepFinished& event) const {
  if (event.nonfinite) {
    if (!state().nonfinite) {
      state().nonfinite = true;
      // The sign of a NaN says nothing to anybody.
      state().nonfinite_text =
          fmt::format("loss {} and gradient norm {} at step {}", std::abs(event.loss.value()),
                      event.grad_norm.value(), event.step);
      state().program->stop_nonfinite(event.step - 1);
      grant(state().saves.nonfinite_from(event.step));
      finish_if_done();
    }
    return;
  }
  state().steps_finished = event.step;
  state().saves.good_through(event.step);
  announce_skipped();
  self->send(state().peers.reporter, event);
  tell_index(event);
}

void Conductor::stop_requested(std::int32_t signal) const {
  if (!state().signal) {
    state().signal = signal;
    state().program->stop_early();
    log_info(fmt::format("stop_requested signal={} finishing the step in flight, then saving",
                         std::string("SIG") + sigabbrev_np(signal)));
    pump();
  }
}

RunFinished Conductor::outcome() const {
  const std::int64_t step = state().steps_finished;
  if (state().outcome) {
    return *state().outcome;
  }
  if (state().nonfinite) {
    return {step, kExitFailure,
            fmt::format("not finite: {}, first {}; nothing was saved after it; start anew with "
                        "--fresh and a lower optimizer.lr or optimizer.grad_clip",
                        state().nonfinite_text.substr(0, state().nonfinite_text.find('\n')),
                        state().nonfinite_text.substr(state().nonfinite_text.find('\n') + 1))};
  }
  if (!state().save_failure.empty()) {
    return {step, kExitFailure,
            fmt::format("the last checkpoint was not saved: {}", state().save_failure)};
  }
  if (!state().report_failure.empty()) {
    return {step, kExitFailure, state().report_failure};
  }
  if (state().signal && !state().program->complete()) {
    return {
        step, kExitStopped,
        fmt::format("stopped by signal {} after step {}, {}; run it again, without --fresh, to go "
                    "on",
                    *state().signal, step, step > 0 ? "saved" : "nothing to save")};
  }
  if (state().program->job_over()) {
    return {
        step, kExitStopped,
        fmt::format("this start's part is done at step {}, saved; run it again to go on", step)};
  }
  return {step, kExitFinished, fmt::format("finished at step {}", step)};
}

void Conductor::finish_if_done() const {
  if (state().ranks_stopped < state().peers.ranks.size() || !state().outstanding.empty()) {
    return;
  }
  if (state().saves.idle()) {
    close_report();
    return;
  }
  state().notes->wait.end();
  state().notes->wait.begin("the last checkpoint to be published", *state().saves.under_way());
  if (!std::exchange(state().draining, true)) {
    self->delayed_send(caf::actor_cast<ConductorActor>(self), state().drain.time, DrainOver{});
  }
}

/// The last save has had its time: what is where.
void Conductor::drain_over() const {
  if (state().saves.idle() || state().outcome) {
    return;
  }
  const std::int64_t newest = state().saves.waiting().value_or(*state().saves.under_way());
  std::string where = "is lost";
  if (state().local == newest) {
    where = fmt::format("is whole in {}, not published", state().drain.local_place);
  } else if (state().local) {
    where = fmt::format("is lost; that of step {} is whole in {}, not published", *state().local,
                        state().drain.local_place);
  }
  const std::string stands = state().published
                                 ? fmt::format("that of step {} stands", *state().published)
                                 : std::string("no checkpoint of this start was published");
  state().outcome = RunFinished{
      state().steps_finished, kExitFailure,
      fmt::format("the checkpoint of step {} {}: publishing took longer than checkpoint.drain_s = "
                  "{}; {}",
                  newest, where, state().drain.time.count(), stands)};
  close_report();
}

void Conductor::close_report() const {
  if (!state().closing) {
    state().closing = true;
    state().notes->wait.end();
    if (state().reporter_gone) {
      tell();
    } else {
      self->send(state().peers.reporter, CloseReport{});
    }
  }
}

void Conductor::tell() const {
  if (!state().told) {
    state().told = true;
    caf::anon_send(state().peers.waiter, outcome());
  }
}

void Conductor::rank_failed(const RankFailed& event) const {
  if (!event.consequence || state().peers.ranks.size() == 1) {
    conclude(event);
  } else if (!state().consequence && !state().outcome) {
    state().consequence = event;
    self->delayed_send(caf::actor_cast<ConductorActor>(self), kCauseTime, ConcludeFailure{});
  }
}

void Conductor::conclude(const RankFailed& event) const {
  if (!state().outcome) {
    if (state().peers.observer && (event.lost || event.consequence)) {
      self->send(state().peers.observer, RankLost{event.rank});
    }
    state().outcome = RunFinished{state().steps_finished, event.exit_code,
                                  fmt::format("rank {} failed: {}", event.rank, event.text),
                                  event.lost || event.consequence};
    close_report();
  }
}

void Conductor::end_for_nodes() const {
  // Otherwise it ends as it is, with what it saves, or by a loss.
  if (state().program->further_steps() && !state().outcome && !state().consequence) {
    state().outcome = {state().steps_finished, kExitFailure,
                       "nodes that are back wait to take part", true, true};
    close_report();
  }
}

void Conductor::part_down(const caf::down_msg& down) const {
  const std::string text = failure_text(down.reason);
  const auto& ranks = state().peers.ranks;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (down.source == ranks[rank].address()) {
      const bool lost = down.reason == caf::exit_reason::remote_link_unreachable;
      if (lost || !text.empty()) {
        // A process that is gone says nothing itself: its node knows how it ended.
        rank_failed({static_cast<std::int32_t>(rank),
                     lost ? "its process is gone or cannot be reached" : text, kExitFailure, lost,
                     lost});
      }
      return;
    }
  }
  if (down.source == state().peers.reporter.address()) {
    state().reporter_gone = true;
    state().report_failure = text.empty() ? "the reporter ended unasked" : text;
    if (state().closing) {
      tell();
    }
  }
}

ConductorActor::behavior_type conductor_behavior(ConductorSelf self, RunProgram::Options program,
                                                 const SaveDrain& drain, const Notes& notes) {
  report_exceptions(self, "conductor", [] { return std::int64_t{-1}; });
  self->state.program.emplace(program);
  self->state.steps_finished = program.first_step;
  self->state.notes = notes;
  self->state.drain = drain;
  const Conductor conductor{self};
  return {
      [conductor](const ConnectConductor& peers) {
        conductor.state().peers = peers;
        for (const RankActor& rank : peers.ranks) {
          conductor.self->monitor(rank);
        }
        conductor.self->monitor(peers.reporter);
        conductor.self->set_down_handler(
            [conductor](caf::down_msg& down) { conductor.part_down(down); });
        conductor.pump();
      },
      [conductor](const CommandFinished& message) {
        auto& outstanding = conductor.state().outstanding;
        const auto command = outstanding.find(message.sequence);
        TRAIN_CHECK(command != outstanding.end(), "command {} of rank {} is not outstanding",
                    message.sequence, message.rank);
        if (--command->second == 0) {
          outstanding.erase(command);
          conductor.pump();
        }
      },
      [conductor](const StepFinished& event) { conductor.step_heard(event); },
      [conductor](const EvaluationFinished& event) {
        const auto heard =
            conductor.state().agreement.hear(event, conductor.state().peers.ranks.size());
        if (!heard) {
          conductor.conclude({event.rank, heard.error().message, kExitFailure});
        } else if (*heard && !conductor.state().nonfinite) {
          conductor.self->send(conductor.state().peers.reporter, event);
          conductor.tell_index(event);
        }
      },
      [conductor](const CheckpointWritten& event) {
        conductor.state().save_failure.clear();
        conductor.state().published = event.step;
        conductor.state().local.reset();
        conductor.self->send(conductor.state().peers.reporter, event);
      },
      [conductor](const CheckpointFailed& event) {
        conductor.state().save_failure = event.text;
        conductor.self->send(conductor.state().peers.reporter, event);
      },
      [conductor](const CheckpointLocal& event) { conductor.state().local = event.step; },
      [conductor](const SaveFinished& event) { conductor.save_finished(event.step); },
      [conductor](const NonfiniteFound& event) {
        if (event.rank == 0) {  // all say the same
          conductor.state().nonfinite_text += "\n" + event.text;
        }
      },
      [conductor](const RankStopped&) {
        ++conductor.state().ranks_stopped;
        conductor.finish_if_done();
      },
      [conductor](const RankFailed& event) { conductor.rank_failed(event); },
      [conductor](const ConcludeFailure&) { conductor.conclude(*conductor.state().consequence); },
      [conductor](const DrainOver&) { conductor.drain_over(); },
      [conductor](const ReportFailed& event) { conductor.state().report_failure = event.text; },
      [conductor](const StopRequested& event) { conductor.stop_requested(event.signal); },
      [conductor](const NodesReturned&) { conductor.end_for_nodes(); },
      [conductor](const ReportDrained&) { conductor.tell(); },
  };
}

}  // namespace

ConductorActor spawn_conductor(caf::actor_system& system, WaitBoard& waits,
                               const RunProgram::Options& program, const SaveDrain& drain) {
  const Notes notes{
      .wait = waits.add("conductor"),
      .commands = waits.add_credits("commands", static_cast<std::int64_t>(kCommandWindow)),
      .saves = waits.add_credits("saves", 1)};
  return system.spawn(conductor_behavior, program, drain, notes);
}

}  // namespace train::actors
