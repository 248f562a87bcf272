#include "actors/head/conductor_actor.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <cmath>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/system/supervision.hpp"
#include "base/exit_codes.hpp"
#include "base/text/log.hpp"
#include "run/recovery/verdict.hpp"

namespace train::actors {
namespace {

/// Lines of the conductor on the launcher's wait table.
struct BoardLines {
  WaitTable::Line wait;
  WaitTable::Credits commands;
  WaitTable::Credits saves;
};

struct ConductorState;
using ConductorSelf = ConductorActor::stateful_pointer<ConductorState>;

struct ConductorState {
  static inline const char* name = "conductor";
  explicit ConductorState(ConductorSelf own) : self(own) {}

  void pump() {
    // Ranks that went on while a generation ends would replace, in memory, the snapshots of steps
    // that its end reports.
    while (!outcome_ && outstanding_.size() < kCommandWindow) {
      const auto command = program_->next();
      if (!command) {
        break;
      }
      give(*command);
    }
    show_credits();
    board_->wait.end();  // Each finished command restarts the wait.
    if (!outstanding_.empty()) {
      board_->wait.begin("the ranks to finish a command", reports_.step);
    }
    finish_if_done();
  }

  void command_finished(const CommandFinished& message) {
    const auto command = outstanding_.find(message.sequence);
    TRAIN_CHECK(command != outstanding_.end(), "command {} of rank {} is not outstanding",
                message.sequence, message.rank);
    if (--command->second == 0) {
      outstanding_.erase(command);
      pump();
    }
  }

  void show_credits() {
    board_->commands.in_use(static_cast<std::int64_t>(outstanding_.size()));
    board_->saves.in_use(saves_.under_way() ? 1 : 0);
  }

  void give(Command command) {
    if (command.kind != engine::CommandKind::stop) {
      outstanding_[command.sequence] = peers_.ranks.size();
    }
    if (command.kind != engine::CommandKind::snapshot) {
      return tell_ranks(command);
    }
    const run::SaveSchedule::Take take = saves_.take(command.step);
    command.replaces = take.replaces;
    command.write_now = take.write_now;
    tell_ranks(command);
    if (take.write_now) {
      tell_index(WriteSnapshot{command.step});
    }
    announce_skipped();
  }

  /// Tells every rank to save the same step next.
  void grant(std::optional<std::int64_t> step) {
    if (step) {
      tell_index(WriteSnapshot{*step});
      tell_ranks(WriteSnapshot{*step});
    }
  }

  void announce_skipped() {
    for (const std::int64_t step : saves_.skipped()) {
      tell_listeners(CheckpointSkipped{step});
      tell_index(CheckpointSkipped{step});
    }
  }

  void save_finished(std::int64_t step) {
    grant(saves_.over(step));
    show_credits();
    announce_skipped();
    finish_if_done();
  }

  /// Ends the wait for the last save and reports the location of each checkpoint.
  void drain_timed_out() {
    if (saves_.idle() || outcome_) {
      return;
    }
    program_over(run::end_of_drain(reports_, saves_.waiting().value_or(*saves_.under_way()),
                                   drain_.local_location, drain_.time.count()));
  }

  template <class Message>
  void tell_ranks(const Message& message) {
    for (const RankActor& rank : peers_.ranks) {
      self->send(rank, message);
    }
  }

  template <class Message>
  void tell_listeners(const Message& message) {
    for (const auto& [who, listener] : peers_.listeners) {
      self->send(listener, message);
    }
  }

  template <class Message>
  void tell_index(const Message& message) {
    if (peers_.index) {
      self->send(peers_.index, message);
    }
  }

  // Every rank has computed the same loss and norm; a mismatch is fatal.
  void step_heard(const StepFinished& event) {
    const auto heard = agreement_.hear(event, peers_.ranks.size());
    if (!heard) {
      rank_failed({event.rank, heard.error().message, kExitFailure});
    } else if (*heard) {
      step_finished(**heard);
    }
  }

  void evaluation_heard(const EvaluationFinished& event) {
    const auto heard = agreement_.hear(event, peers_.ranks.size());
    if (!heard) {
      rank_failed({event.rank, heard.error().message, kExitFailure});
    } else if (*heard && reports_.nonfinite.empty()) {
      tell_listeners(**heard);
      tell_index(**heard);
      if (program_->evaluated((*heard)->step, **heard)) {
        pump();
      }
    }
  }

  void tokens_heard(const TokensSampled& event) {
    const auto heard = agreement_.hear(event, peers_.ranks.size());
    if (!heard) {
      return;
    }
    if (const auto texts = program_->sampled(*heard); texts && reports_.nonfinite.empty()) {
      tell_listeners(*texts);
    }
    pump();
  }

  void step_finished(const StepFinished& event) {
    if (event.nonfinite) {
      if (reports_.nonfinite.empty()) {
        // The sign of a NaN carries no information.
        reports_.nonfinite =
            fmt::format("loss {} and gradient norm {} at step {}", std::abs(event.loss.value()),
                        event.grad_norm.value(), event.step);
        program_->stop_nonfinite(event.step - 1);
        grant(saves_.nonfinite_from(event.step));
        finish_if_done();
      }
      return;
    }
    reports_.step = event.step;
    saves_.good_through(event.step);
    announce_skipped();
    tell_listeners(event);
    tell_index(event);
  }

  void stop_requested(std::int32_t signal) {
    if (verdict_.signal(signal).has(run::HeadAction::save) && !reports_.signal) {
      reports_.signal = signal;
      program_->stop_early();
      log_info(fmt::format("stop_requested signal={} finishing the step in flight, then saving",
                           std::string("SIG") + sigabbrev_np(signal)));
      tell_listeners(StopRequested{signal});
      pump();
    }
  }

  void finish_if_done() {
    if (ranks_stopped_ < peers_.ranks.size() || !outstanding_.empty()) {
      return;
    }
    if (saves_.idle()) {
      close_report();
      return;
    }
    board_->wait.end();
    board_->wait.begin("the last checkpoint to be published", *saves_.under_way());
    if (!std::exchange(draining_, true)) {
      self->delayed_send(caf::actor_cast<ConductorActor>(self), drain_.time, DrainTimeout{});
    }
  }

  void close_report() {
    if (!closing_) {
      closing_ = true;
      board_->wait.end();
      tell_listeners(CloseReport{});
      tell_if_drained();
    }
  }

  /// `address`: a listener that is done, or has ended.
  void listener_done(const caf::actor_addr& address) {
    undrained_.erase(address);
    tell_if_drained();
  }

  void tell_if_drained() {
    if (closing_ && undrained_.empty() && !std::exchange(told_, true)) {
      program_over(run::end_of(*program_, reports_));
      caf::anon_send(peers_.waiter, *outcome_);
    }
  }

  /// Ends the run unless a failure has already ended it.
  void program_over(const run::ProgramEnd& end) { carry_out(verdict_.program_over(end)); }

  void rank_failed(const RankFailed& event) {
    carry_out(verdict_.failed(event, peers_.ranks.size()));
  }

  void carry_out(const run::HeadStep& step) {
    if (step.has(run::HeadAction::wait_for_cause)) {
      self->delayed_send(caf::actor_cast<ConductorActor>(self), verdict_.cause_time(),
                         CauseTimeout{});
    }
    if (step.has(run::HeadAction::end_ranks) && !outcome_) {
      outcome_ = verdict_.outcome(reports_.step);
      if (peers_.observer && outcome_->end == run::GenerationEnd::rank_lost) {
        self->send(peers_.observer, RankLost{});
      }
      close_report();
    }
  }

  void end_for_nodes() {
    // Otherwise the run ends normally, after its saves, or by a loss.
    carry_out(verdict_.nodes_wait(program_->further_steps() && !outcome_));
  }

  void part_down(const caf::down_msg& down) {
    const std::string text = failure_text(down.reason);
    const auto& ranks = peers_.ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (down.source == ranks[rank].address()) {
        const bool lost = down.reason == caf::exit_reason::remote_link_unreachable;
        if (lost || !text.empty()) {
          // A dead process cannot report: its node knows how it ended.
          rank_failed({static_cast<std::int32_t>(rank),
                       lost ? "its process is gone or cannot be reached" : text, kExitFailure, lost,
                       lost});
        }
        return;
      }
    }
    for (const auto& [who, listener] : peers_.listeners) {
      if (down.source == listener.address()) {
        reports_.report_failure = text.empty() ? fmt::format("the {} ended unasked", who) : text;
        listener_done(down.source);
      }
    }
  }

  ConductorSelf self;
  std::optional<run::RunProgram> program_;
  ConnectConductor peers_;
  std::optional<BoardLines> board_;
  // Unfinished commands (without stop), and the number of ranks that still have to finish each.
  std::map<std::uint64_t, std::size_t> outstanding_;
  run::RankAgreement agreement_;
  SaveDrain drain_;
  run::SaveSchedule saves_;
  bool draining_ = false;
  std::size_t ranks_stopped_ = 0;
  bool closing_ = false;
  std::set<caf::actor_addr> undrained_;  // Listeners with output left to write.
  bool told_ = false;                    // The waiter has its RunFinished.
  run::ProgramReports reports_;
  bool origin_found_ = false;                       // Origin of a non-finite value.
  run::Verdict verdict_{run::HeadState::training};  // Verdict on training ranks.
  std::optional<RunFinished> outcome_;              // Outcome of the run.
};

ConductorActor::behavior_type conductor_behavior(ConductorSelf self,
                                                 run::RunProgram::Options program,
                                                 const SaveDrain& drain, const BoardLines& board) {
  report_exceptions(self, "conductor", [] { return std::int64_t{-1}; });
  ConductorState* const state = &self->state;
  state->reports_.step = program.first_step;
  state->program_.emplace(std::move(program));
  state->board_ = board;
  state->drain_ = drain;
  return {
      [state](const ConnectConductor& peers) {
        state->peers_ = peers;
        for (const RankActor& rank : peers.ranks) {
          state->self->monitor(rank);
        }
        for (const auto& [who, listener] : peers.listeners) {
          state->self->monitor(listener);
          state->undrained_.insert(listener.address());
        }
        state->self->set_down_handler([state](caf::down_msg& down) { state->part_down(down); });
        state->pump();
      },
      [state](const CommandFinished& message) { state->command_finished(message); },
      [state](const StepFinished& event) { state->step_heard(event); },
      [state](const EvaluationFinished& event) { state->evaluation_heard(event); },
      [state](const TokensSampled& event) { state->tokens_heard(event); },
      [state](const CheckpointWritten& event) {
        state->reports_.save_failure.clear();
        state->reports_.published = event.step;
        state->reports_.local.reset();
        state->tell_listeners(event);
      },
      [state](const CheckpointFailed& event) {
        state->reports_.save_failure = event.text;
        state->tell_listeners(event);
      },
      [state](const CheckpointLocal& event) { state->reports_.local = event.step; },
      [state](const SaveFinished& event) { state->save_finished(event.step); },
      [state](const NonfiniteFound& event) {
        // All ranks report the same origin; the second pass must not replace the first pass's.
        if (event.rank == 0 && !state->origin_found_) {
          state->origin_found_ = event.found;
          state->reports_.origin = event.text;
        }
      },
      [state](const RankStopped&) {
        ++state->ranks_stopped_;
        state->finish_if_done();
      },
      [state](const RankFailed& event) { state->rank_failed(event); },
      [state](const LauncherLost& event) {
        state->carry_out(state->verdict_.launcher_lost(event.node));
      },
      [state](const CauseTimeout&) { state->carry_out(state->verdict_.conclude()); },
      [state](const DrainTimeout&) { state->drain_timed_out(); },
      [state](const ReportFailed& event) { state->reports_.report_failure = event.text; },
      [state](const StopRequested& event) { state->stop_requested(event.signal); },
      [state](const NodesReturned&) { state->end_for_nodes(); },
      [state](const ReportDrained&) {
        state->listener_done(caf::actor_cast<caf::actor_addr>(state->self->current_sender()));
      },
  };
}

}  // namespace

ConductorActor spawn_conductor(caf::actor_system& system, WaitTable& waits,
                               const run::RunProgram::Options& program, const SaveDrain& drain) {
  const BoardLines board{
      .wait = waits.add("conductor"),
      .commands = waits.add_credits("commands", static_cast<std::int64_t>(kCommandWindow)),
      .saves = waits.add_credits("saves", 1)};
  return system.spawn(conductor_behavior, program, drain, board);
}

}  // namespace train::actors
