#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace train::actors {

/// How fast one start of the ranks trains: tokens over the time between the ends of steps, as the
/// ranks measured it (StepFinished::trained_ns). Evaluations are not in that time, nor is what lies
/// between two starts; all that a step waits for is, copies for a checkpoint too.
///
/// Rates that are shown are over a window: the last 30 s of training, or the last 10 steps where
/// those took longer. The first step of a start, which meets cold caches and empty buffers, is in
/// it only as long as it is alone.
///
/// Threading: not thread-safe. Memory: a few hundred ends of steps, however short they are.
class StepRate {
 public:
  static constexpr std::int64_t kWindow_ns = 30'000'000'000;
  static constexpr std::int64_t kWindowSteps = 10;

  struct Options {
    std::int64_t tokens_per_step = 0;
    std::int64_t total_steps = 0;
    /// Steps between evaluations, and between answers to eval.choices; 0: there are none.
    std::int64_t eval_interval = 0, choices_interval = 0;
  };

  explicit StepRate(const Options& options);

  /// `step`, counted from 1, has ended when the ranks had trained for so long.
  void end_step(std::int64_t step, std::int64_t trained_ns);
  void end_evaluation(bool of_choices, std::int64_t elapsed_ns);

  /// Of a step, over those that ended since this was asked last. REQUIRES: one did.
  [[nodiscard]] double take_step_seconds();
  /// Over the window. REQUIRES: a step has ended.
  [[nodiscard]] double tokens_per_second() const;
  /// What the window's steps took. REQUIRES: a step has ended.
  [[nodiscard]] double window_seconds() const;
  /// What the steps and evaluations that are left take, by the window and by the newest evaluation.
  /// REQUIRES: a step has ended.
  [[nodiscard]] double remaining_seconds() const;

 private:
  struct End {
    std::int64_t steps = 0;  // that have ended in this start
    std::int64_t trained_ns = 0;
  };
  struct Evaluations {
    std::int64_t interval = 0;
    std::int64_t elapsed_ns = 0;  // the newest one's
  };
  /// Of a step between the two.
  [[nodiscard]] static double step_seconds(const End& from, const End& to);
  void push(const End& end);

  Options options_;
  std::array<Evaluations, 2> evaluations_;  // those of choices last
  std::int64_t step_ = 0;
  End begin_;             // the window's
  std::deque<End> ends_;  // in it, the newest last
  End taken_;
};

}  // namespace train::actors
