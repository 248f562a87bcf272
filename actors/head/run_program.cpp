#include "actors/head/run_program.hpp"

#include <utility>

namespace train::actors {

using engine::CommandKind;

RunProgram::RunProgram(const Options& options)
    : options_(options),
      step_(options.first_step),
      saved_(options.first_step > 0 && options.first_step_saved) {
  // A resumed run evaluated this step before it was saved, but for a save on a signal, which does
  // not wait for it; a new run starts with a measured loss.
  evaluated_ = options.first_step > 0 && !options.evaluation_missed;
}

bool RunProgram::due(std::int64_t interval) const {
  return step_ >= options_.total_steps || (interval > 0 && step_ % interval == 0);
}

Command RunProgram::give(engine::CommandKind kind, std::int64_t step) {
  return {.sequence = sequence_++, .kind = kind, .step = step};
}

std::optional<Command> RunProgram::next() {
  if (stopped_) {
    return std::nullopt;
  }
  if (nonfinite_) {
    if (const std::int64_t step = std::exchange(*nonfinite_, -1); step >= 0) {
      return give(CommandKind::find_nonfinite, step);
    }
    stopped_ = true;
    return give(CommandKind::stop, step_);
  }
  if (!stop_early_ && !evaluated_ && options_.eval_interval > 0 && due(options_.eval_interval)) {
    evaluated_ = true;
    return give(CommandKind::evaluate, step_);
  }
  const bool missed = options_.save_missed && step_ == options_.first_step;
  const bool save_due =
      options_.saves && (stop_early_ || job_over() || missed || due(options_.checkpoint_interval));
  if (!saved_ && step_ > 0 && save_due) {
    saved_ = true;
    return give(CommandKind::snapshot, step_);
  }
  if (!further_steps()) {
    stopped_ = true;
    return give(CommandKind::stop, step_);
  }
  evaluated_ = false;
  saved_ = false;
  return give(CommandKind::train_step, step_++);
}

void RunProgram::stop_early() { stop_early_ = true; }

void RunProgram::stop_nonfinite(std::int64_t step) {
  if (!nonfinite_) {
    nonfinite_ = step;
  }
}

}  // namespace train::actors
