#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/rank/plan/pass_list.hpp"
#include "run/events/rank_reports.hpp"
#include "run/program/command.hpp"
#include "run/program/early_stop.hpp"
#include "run/program/text_sampling.hpp"

namespace train::data {
struct ReferenceRows;
}  // namespace train::data

namespace train::run {

/// Sequence of the run's commands. A pure function of its options and of the two events that can
/// cut it short. A plain class; the conductor owns it.
class RunProgram {
 public:
  /// ComputeReference commands of a live reference: numbered as their steps, followed by those of
  /// validation.
  struct LiveReference {
    bool used = false;
    std::int64_t first_of_validation = 0;
    std::int64_t of_validation = 0;
  };
  struct Options {
    std::int64_t first_step = 0;  ///< Steps already done (resume).
    std::int64_t total_steps = 0;
    /// ComputeReference commands before a run's first step.
    std::int64_t reference_commands = 0;
    std::int64_t references_done = 0;  ///< Reference commands done by an earlier start.
    /// Reference commands right before each step, and of validation before the first evaluation.
    LiveReference live_reference = {};
    /// Last step of these ranks' phase (engine::last_step_of()); nullopt: no limit.
    std::optional<std::int64_t> phase_end = {};
    engine::PassList passes = engine::PassList();
    /// Maximum number of steps of this start, 0 if none is left; nullopt: no limit.
    std::optional<std::int64_t> steps_per_job = {};
    std::int64_t eval_interval = 0;        ///< 0: never.
    std::int64_t choices_interval = 0;     ///< PassList::scoring() interval; 0: never.
    std::int64_t samples_interval = 0;     ///< PassList::sampling() interval; 0: never.
    TextSampling::Options sampling = {};   ///< Texts to sample.
    std::int64_t checkpoint_interval = 0;  ///< 0: only at the end.
    bool saves = true;                     ///< False: never.
    /// True if a signal came between step `first_step` and its evaluation: evaluate now if due.
    bool evaluation_missed = false;
    bool choices_missed = false;   ///< As evaluation_missed, for eval.choices.
    bool samples_missed = false;   ///< As evaluation_missed, for the texts.
    bool first_step_saved = true;  ///< A checkpoint has the state of `first_step`.
    /// True if a checkpoint due up to `first_step` was lost with the ranks: save at once.
    bool save_missed = false;
    /// Decision of train.stop_after, which has heard the evaluations up to `first_step`.
    EarlyStop early_stop = EarlyStop();
  };

  explicit RunProgram(Options options);

  /// Returns the next command; nullopt after `stop`, and while an evaluation decides what follows,
  /// or the next tokens of texts do.
  [[nodiscard]] std::optional<Command> next();
  /// Handles the evaluation after `step` steps: with `early_stop` the run may end there.
  /// True if that decided what follows, so that next() has commands again.
  bool evaluated(std::int64_t step, const EvaluationFinished& event);
  /// Handles the next token of each text of all ranks, so that next() has commands again. Returns
  /// the texts when they are over.
  [[nodiscard]] std::optional<TextsSampled> sampled(const TokensSampled& event);
  /// Why the run ended before all of its steps; empty: it did not.
  [[nodiscard]] std::string early_end() const {
    return options_.early_stop.over() ? options_.early_stop.text() : std::string();
  }
  /// Handles a signal: no further step; snapshot the current state, then stop.
  void stop_early();
  /// Handles a non-finite step `step` (from 0): find the origin, then stop; nothing more is saved.
  void stop_nonfinite(std::int64_t step);

  /// True if this start has done its part of a longer run.
  [[nodiscard]] bool job_over() const {
    return options_.steps_per_job && step_ - options_.first_step >= *options_.steps_per_job &&
           !finished_all_steps();
  }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] bool finished_all_steps() const { return step_ >= options_.total_steps; }
  /// True if these ranks have finished their phase, and the run continues with others.
  [[nodiscard]] bool phase_over() const {
    return options_.phase_end && step_ >= *options_.phase_end && !finished_all_steps();
  }
  /// True if this start has further steps to do.
  [[nodiscard]] bool further_steps() const {
    return !nonfinite_ && !stop_early_ && !job_over() && !phase_over() && !finished_all_steps();
  }
  /// True if all steps, and the evaluations of the last one, have been issued.
  [[nodiscard]] bool complete() const {
    return finished_all_steps() && (evaluated_ || options_.eval_interval == 0) &&
           (answered_ || options_.choices_interval == 0) &&
           (sampled_ || options_.samples_interval == 0);
  }

 private:
  [[nodiscard]] Command give(engine::CommandKind kind, std::int64_t step);
  [[nodiscard]] Command give(const engine::PassPlan& pass, std::int64_t step);
  /// Next command of the current step.
  [[nodiscard]] Command next_of_step();
  [[nodiscard]] bool due(std::int64_t interval) const;
  /// Command for the next token of each text.
  [[nodiscard]] Command next_tokens();
  /// Reference command due before the next step or evaluation, if any.
  [[nodiscard]] std::optional<Command> live_reference(bool evaluates);

  Options options_;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = 0;
  std::int64_t references_ = 0;  ///< Issued; for a live reference those of validation.
  std::int64_t referenced_ = 0;  ///< Steps up to this one have their live reference.
  /// Issued commands of the next step, and of a non-finite search.
  std::size_t given_ = 0, searched_ = 0;
  bool evaluated_ = false;          ///< At step_.
  bool answered_ = false;           ///< At step_: the choices.
  bool sampled_ = false;            ///< At step_: the texts.
  bool saved_ = false;              ///< At step_.
  bool awaits_evaluation_ = false;  ///< That of step_ decides whether further steps follow.
  bool awaits_tokens_ = false;      ///< Sampled tokens of the last command are missing.
  TextSampling sampling_;
  bool sampling_begun_ = false;  ///< At step_.
  std::int64_t sampling_ns_ = 0;
  bool stop_early_ = false;
  std::optional<std::int64_t> nonfinite_;  ///< Non-finite step.
  bool stopped_ = false;
};

/// Live reference commands of a run with this data.
[[nodiscard]] RunProgram::LiveReference live_reference_of(const data::ReferenceRows& rows);

/// Copies of a rank's state that saves hold at most: one being written, one waiting.
inline constexpr std::size_t kStateCopies = 2;

/// Schedule of saves: one save is under way, the newest other snapshot waits, and replaces one that
/// waited before. A plain class; the conductor owns it and sends its decisions to every rank, so
/// that all ranks save the same steps.
///
/// A snapshot whose state turns out not finite is dropped as if it had never been taken. A replaced
/// snapshot therefore stays in the ranks' memory until its successor is known to be good. REQUIRES:
/// steps of successive calls of take() ascend.
class SaveSchedule {
 public:
  /// Parameters of the command to take a snapshot.
  struct Take {
    std::int64_t replaces = -1;  ///< Snapshot replaced by this one once it is good; -1: none.
    bool write_now = false;      ///< No save is under way: granted with the command.
  };

  /// Schedules a save of the state after `step` steps.
  [[nodiscard]] Take take(std::int64_t step);

  /// Ends the save under way, of `step`, successful or not. Returns the step to grant next, if one
  /// waits.
  [[nodiscard]] std::optional<std::int64_t> over(std::int64_t step);

  /// Marks all states up to `step` as finite.
  void good_through(std::int64_t step);
  /// Drops the states of `step` and later. Returns the step to grant next if that ended the save
  /// under way.
  [[nodiscard]] std::optional<std::int64_t> nonfinite_from(std::int64_t step);

  /// Steps replaced for good since the last call, ascending.
  [[nodiscard]] std::vector<std::int64_t> skipped() { return std::exchange(skipped_, {}); }

  [[nodiscard]] bool idle() const { return taken_.empty(); }
  [[nodiscard]] std::optional<std::int64_t> under_way() const { return under_way_; }
  /// Newest waiting step.
  [[nodiscard]] std::optional<std::int64_t> waiting() const;

 private:
  [[nodiscard]] std::optional<std::int64_t> grant_next();
  void forget_replaced();

  std::vector<std::int64_t> taken_;  // Ascending, including the one under way.
  std::optional<std::int64_t> under_way_;
  std::vector<std::int64_t> skipped_;
  std::int64_t good_through_ = -1;
};

/// Compares the ranks' reports of the same step, which promise P1 requires to be bitwise equal. A
/// plain class; the conductor owns it.
class RankAgreement {
 public:
  /// Takes one event of each of `ranks` ranks. On the last one, returns the event of all of them,
  /// with the sum of their digests. Errors (failure): two ranks differ; names both, the step and
  /// the values.
  [[nodiscard]] Result<std::optional<StepFinished>> hear(const StepFinished& event,
                                                         std::size_t ranks);
  /// Returns, on the last event, the evaluation with the documents of all ranks. Errors (failure):
  /// as above.
  [[nodiscard]] Result<std::optional<EvaluationFinished>> hear(const EvaluationFinished& event,
                                                               std::size_t ranks);
  /// Returns, on the last event, the tokens of all ranks' texts. No two ranks have the same text.
  [[nodiscard]] std::optional<TokensSampled> hear(const TokensSampled& event, std::size_t ranks);

 private:
  template <class Event>
  struct Heard {
    Event first;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Heard<StepFinished>> steps_;
  /// Keyed by step and by whether it is of choices: a rank may be one evaluation behind.
  std::map<std::pair<std::int64_t, bool>, Heard<EvaluationFinished>> evaluations_;
  Heard<TokensSampled> tokens_ = {};  // Answers to one command at a time.
};

}  // namespace train::run
