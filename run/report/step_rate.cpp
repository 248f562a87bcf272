#include "run/report/step_rate.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::run {
namespace {

/// Ends of steps closer together than this are merged; the window's begin is late by at most this.
constexpr std::int64_t kJoined_ns = StepRate::kWindow_ns / 300;

double to_seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

StepRate::StepRate(const Options& options)
    : options_(options),
      evaluations_({Evaluations{.interval = options.eval_interval},
                    Evaluations{.interval = options.choices_interval},
                    Evaluations{.interval = options.samples_interval}}) {}

void StepRate::end_step(std::int64_t step, std::int64_t trained_ns) {
  step_ = step;
  const End before = ends_.empty() ? begin_ : ends_.back();
  push({.steps = before.steps + 1, .trained_ns = trained_ns});
  if (before.steps == 1) {
    begin_ = before;  // The first step leaves the window.
    ends_.pop_front();
  }
  const End& newest = ends_.back();
  const auto covers = [&newest](const End& begin) {
    return newest.trained_ns - begin.trained_ns >= kWindow_ns &&
           newest.steps - begin.steps >= kWindowSteps;
  };
  while (covers(ends_.front())) {
    begin_ = ends_.front();
    ends_.pop_front();
  }
}

void StepRate::push(const End& end) {
  if (ends_.size() >= 2 && end.trained_ns - ends_[ends_.size() - 2].trained_ns < kJoined_ns) {
    ends_.back() = end;
  } else {
    ends_.push_back(end);
  }
}

void StepRate::end_evaluation(bool of_choices, std::int64_t elapsed_ns) {
  evaluations_.at(of_choices ? 1 : 0).elapsed_ns = elapsed_ns;
}

void StepRate::end_samples(std::int64_t elapsed_ns) { evaluations_.back().elapsed_ns = elapsed_ns; }

double StepRate::step_seconds(const End& from, const End& to) {
  TRAIN_CHECK(to.steps > from.steps, "no step has ended since step {} of this start", from.steps);
  // A coarse clock may not have advanced.
  const std::int64_t passed_ns = std::max<std::int64_t>(1, to.trained_ns - from.trained_ns);
  return to_seconds(passed_ns) / static_cast<double>(to.steps - from.steps);
}

double StepRate::take_step_seconds() {
  TRAIN_CHECK(!ends_.empty(), "no step has ended");
  const double seconds = step_seconds(taken_, ends_.back());
  taken_ = ends_.back();
  return seconds;
}

double StepRate::tokens_per_second() const {
  TRAIN_CHECK(!ends_.empty(), "no step has ended");
  return static_cast<double>(options_.tokens_per_step) / step_seconds(begin_, ends_.back());
}

double StepRate::window_seconds() const {
  TRAIN_CHECK(!ends_.empty(), "no step has ended");
  return to_seconds(ends_.back().trained_ns - begin_.trained_ns);
}

double StepRate::remaining_seconds() const {
  TRAIN_CHECK(!ends_.empty(), "no step has ended");
  const std::int64_t left = std::max<std::int64_t>(0, options_.total_steps - step_);
  double seconds = static_cast<double>(left) * step_seconds(begin_, ends_.back());
  for (const Evaluations& each : evaluations_) {
    if (each.interval > 0 && left > 0) {  // After each `interval` steps, and after the last.
      const std::int64_t count =
          (options_.total_steps - 1) / each.interval - step_ / each.interval + 1;
      seconds += static_cast<double>(count) * to_seconds(each.elapsed_ns);
    }
  }
  return seconds;
}

}  // namespace train::run
