#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace train::run {

/// Training speed of one start of the ranks: tokens over the time between the ends of steps, as
/// measured by the ranks (StepFinished::trained_ns). This time excludes evaluations and the time
/// between two starts, and includes all waits of a step, such as copies for a checkpoint.
///
/// Displayed rates use a window: the last 30 s of training, or the last 10 steps if those took
/// longer. The first step of a start, with cold caches and empty buffers, is in the window only
/// until the second one ends.
///
/// Threading: not thread-safe. Memory: a few hundred ends of steps, regardless of their duration.
class StepRate {
 public:
  static constexpr std::int64_t kWindow_ns = 30'000'000'000;
  static constexpr std::int64_t kWindowSteps = 10;

  struct Options {
    std::int64_t tokens_per_step = 0;
    std::int64_t total_steps = 0;
    /// Steps between evaluations, between answers to eval.choices, and between samples; 0: there
    /// are none.
    std::int64_t eval_interval = 0, choices_interval = 0, samples_interval = 0;
  };

  explicit StepRate(const Options& options);

  /// Ends `step`, counted from 1; `trained_ns`: total training time of the ranks.
  void end_step(std::int64_t step, std::int64_t trained_ns);
  void end_evaluation(bool of_choices, std::int64_t elapsed_ns);
  void end_samples(std::int64_t elapsed_ns);

  /// Mean time of a step over those ended since the last call. REQUIRES: one ended.
  [[nodiscard]] double take_step_seconds();
  /// Rate over the window. REQUIRES: a step has ended.
  [[nodiscard]] double tokens_per_second() const;
  /// Duration of the window's steps. REQUIRES: a step has ended.
  [[nodiscard]] double window_seconds() const;
  /// Estimate for the remaining steps and evaluations, from the window and the newest evaluation.
  /// REQUIRES: a step has ended.
  [[nodiscard]] double remaining_seconds() const;

 private:
  struct End {
    std::int64_t steps = 0;  // Steps ended in this start.
    std::int64_t trained_ns = 0;
  };
  struct Evaluations {
    std::int64_t interval = 0;
    std::int64_t elapsed_ns = 0;  // Duration of the newest one.
  };
  /// Mean time of a step between two ends.
  [[nodiscard]] static double step_seconds(const End& from, const End& to);
  void push(const End& end);

  Options options_;
  std::array<Evaluations, 3> evaluations_;  // Evaluations, then choices, then samples.
  std::int64_t step_ = 0;
  End begin_;             // Begin of the window.
  std::deque<End> ends_;  // Ends in the window, newest last.
  End taken_;
};

}  // namespace train::run
