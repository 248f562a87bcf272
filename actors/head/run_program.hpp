#pragma once

#include <cstdint>
#include <optional>

#include "actors/messages/command_messages.hpp"

namespace train::actors {

/// The run as a program: which command comes next. A pure function of its options and of the two
/// things that can cut it short. A plain class; the conductor owns it.
class RunProgram {
 public:
  struct Options {
    std::int64_t first_step = 0;  ///< Steps already done (resume).
    std::int64_t total_steps = 0;
    /// This start does at most so many, which may be none that is left; nothing: all.
    std::optional<std::int64_t> steps_per_job = {};
    std::int64_t eval_interval = 0;        ///< 0: never.
    std::int64_t checkpoint_interval = 0;  ///< 0: only at the end.
    bool saves = true;                     ///< False: never.
    /// A signal came between the last of `first_step` and its evaluation: make up for it if due.
    bool evaluation_missed = false;
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
  /// The start is not about to end.
  [[nodiscard]] bool further_steps() const {
    return !nonfinite_ && !stop_early_ && !job_over() && !finished_all_steps();
  }
  /// All steps, and the evaluation of the last one, have been given out.
  [[nodiscard]] bool complete() const {
    return finished_all_steps() && (evaluated_ || options_.eval_interval == 0);
  }

 private:
  [[nodiscard]] Command give(engine::CommandKind kind, std::int64_t step);
  [[nodiscard]] bool due(std::int64_t interval) const;

  Options options_;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = 0;
  bool evaluated_ = false;  ///< At step_.
  bool saved_ = false;      ///< At step_.
  bool stop_early_ = false;
  std::optional<std::int64_t> nonfinite_;
  bool stopped_ = false;
};

}  // namespace train::actors
