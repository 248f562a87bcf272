#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/messages/event_messages.hpp"
#include "base/result.hpp"

#include "actors/messages/command_messages.hpp"
#include "engine/rank/plan/pass_list.hpp"

namespace train::actors {

struct ReferenceRows;

/// The run as a program: which command comes next. A pure function of its options and of the two
/// things that can cut it short. A plain class; the conductor owns it.
class RunProgram {
 public:
  /// ComputeReference of a live reference: its commands are numbered as the steps that they are of,
  /// then those of validation.
  struct LiveReference {
    bool used = false;
    std::int64_t first_of_validation = 0;
    std::int64_t of_validation = 0;
  };
  struct Options {
    std::int64_t first_step = 0;  ///< Steps already done (resume).
    std::int64_t total_steps = 0;
    /// Of a run from its first step on: what comes before all else, ComputeReference.
    std::int64_t reference_commands = 0;
    std::int64_t references_done = 0;  ///< Of those; by an earlier start.
    /// Or those of each step right before it, and the validation's before the first evaluation.
    LiveReference live_reference = {};
    /// These ranks are for no step behind it (engine::last_step_of()); nothing: for all.
    std::optional<std::int64_t> phase_end = {};
    engine::PassList passes = engine::PassList();
    /// This start does at most so many, which may be none that is left; nothing: all.
    std::optional<std::int64_t> steps_per_job = {};
    std::int64_t eval_interval = 0;        ///< 0: never.
    std::int64_t choices_interval = 0;     ///< Of PassList::scoring(); 0: never.
    std::int64_t checkpoint_interval = 0;  ///< 0: only at the end.
    bool saves = true;                     ///< False: never.
    /// A signal came between the last of `first_step` and its evaluation: make up for it if due.
    bool evaluation_missed = false;
    bool choices_missed = false;   ///< The same of its answers.
    bool first_step_saved = true;  ///< A checkpoint has the state of `first_step`.
    /// One that was due up to `first_step` was lost with the ranks: make up for it at once.
    bool save_missed = false;
  };

  explicit RunProgram(const Options& options);

  /// The next command; empty once `stop` was given out.
  [[nodiscard]] std::optional<Command> next();
  /// A signal: no further step; snapshot what is done, then stop.
  void stop_early();
  /// Step `step` (from 0) was not finite: look for the origin, then stop; nothing more is saved.
  void stop_nonfinite(std::int64_t step);

  /// This start has done its part of a longer run.
  [[nodiscard]] bool job_over() const {
    return options_.steps_per_job && step_ - options_.first_step >= *options_.steps_per_job &&
           !finished_all_steps();
  }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] bool finished_all_steps() const { return step_ >= options_.total_steps; }
  /// These ranks have done all of their phase, and the run goes on with others.
  [[nodiscard]] bool phase_over() const {
    return options_.phase_end && step_ >= *options_.phase_end && !finished_all_steps();
  }
  /// The start is not about to end.
  [[nodiscard]] bool further_steps() const {
    return !nonfinite_ && !stop_early_ && !job_over() && !phase_over() && !finished_all_steps();
  }
  /// All steps, and the evaluations of the last one, have been given out.
  [[nodiscard]] bool complete() const {
    return finished_all_steps() && (evaluated_ || options_.eval_interval == 0) &&
           (answered_ || options_.choices_interval == 0);
  }

 private:
  [[nodiscard]] Command give(engine::CommandKind kind, std::int64_t step);
  [[nodiscard]] Command give(const engine::PassPlan& pass, std::int64_t step);
  /// The next of the commands that a step is.
  [[nodiscard]] Command next_of_step();
  [[nodiscard]] bool due(std::int64_t interval) const;
  /// What has to be asked of a live reference before the next step or evaluation, if anything.
  [[nodiscard]] std::optional<Command> live_reference(bool evaluates);

  Options options_;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = 0;
  std::int64_t references_ = 0;  ///< Given out; of a live reference those of validation.
  std::int64_t referenced_ = 0;  ///< The steps up to this one have their live reference.
  /// Commands of the next step, and of the search of one, that have been given out.
  std::size_t given_ = 0, searched_ = 0;
  bool evaluated_ = false;  ///< At step_.
  bool answered_ = false;   ///< At step_: the choices.
  bool saved_ = false;      ///< At step_.
  bool stop_early_ = false;
  std::optional<std::int64_t> nonfinite_;  ///< The step.
  bool stopped_ = false;
};

/// What a run with this data gives out.
[[nodiscard]] RunProgram::LiveReference live_reference_of(const ReferenceRows& rows);

/// Which snapshot is saved when: one save is under way, the newest of the others waits for it, and
/// takes the place of one that waited before. A plain class; the conductor owns it and tells every
/// rank what it says, so that no rank ever saves what another one skips.
///
/// A snapshot whose state turns out not finite is dropped as if it had never been taken. So what a
/// newer one replaces stays in the ranks' memory until the newer one is known to be good.
/// REQUIRES: steps of successive calls of take() ascend.
class SaveSchedule {
 public:
  /// What goes with the command to take a snapshot.
  struct Take {
    std::int64_t replaces = -1;  ///< The snapshot whose place it takes, once it is good; -1: none.
    bool write_now = false;      ///< Nothing is under way: it is granted with the command.
  };

  /// The state after `step` steps is to be saved.
  [[nodiscard]] Take take(std::int64_t step);

  /// The save of `step`, which was under way, is over, well or not. The step to grant next, if one
  /// waits.
  [[nodiscard]] std::optional<std::int64_t> over(std::int64_t step);

  /// All states up to `step` are finite.
  void good_through(std::int64_t step);
  /// The states of `step` and after are not. The step to grant next if that ended what was under
  /// way.
  [[nodiscard]] std::optional<std::int64_t> nonfinite_from(std::int64_t step);

  /// Steps that a newer one has replaced for good since the last call, ascending.
  [[nodiscard]] std::vector<std::int64_t> skipped() { return std::exchange(skipped_, {}); }

  [[nodiscard]] bool idle() const { return taken_.empty(); }
  [[nodiscard]] std::optional<std::int64_t> under_way() const { return under_way_; }
  /// The newest one that waits.
  [[nodiscard]] std::optional<std::int64_t> waiting() const;

 private:
  [[nodiscard]] std::optional<std::int64_t> grant_next();
  void forget_replaced();

  std::vector<std::int64_t> taken_;  // ascending; the one under way among them
  std::optional<std::int64_t> under_way_;
  std::vector<std::int64_t> skipped_;
  std::int64_t good_through_ = -1;
};

/// Compares what ranks report of the same step: promise P1 says that it is the same bitwise. A
/// plain class; the conductor owns it.
class RankAgreement {
 public:
  /// The event of one of `ranks` ranks. When it is the last one: the event of all of them, with the
  /// sum of their digests. Errors (failure): two ranks differ; names both, the step and the values.
  [[nodiscard]] Result<std::optional<StepFinished>> hear(const StepFinished& event,
                                                         std::size_t ranks);
  /// The same, with the documents of all ranks.
  [[nodiscard]] Result<std::optional<EvaluationFinished>> hear(const EvaluationFinished& event,
                                                               std::size_t ranks);

 private:
  template <class Event>
  struct Heard {
    Event first;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Heard<StepFinished>> steps_;
  /// By step, and whether they are of choices: a rank may be behind with one of a step.
  std::map<std::pair<std::int64_t, bool>, Heard<EvaluationFinished>> evaluations_;
};

}  // namespace train::actors
