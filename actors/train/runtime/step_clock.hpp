#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/process/steady_time.hpp"

namespace train::actors {

/// Measures a rank's steps on its compute stream, excluding the messages to the head.
class StepClock {
 public:
  /// Monotonic time in ns since a fixed moment.
  using Time = std::function<std::int64_t()>;

  explicit StepClock(Time now_ns = steady_now_ns) : now_ns_(std::move(now_ns)) {}

  /// Starts the time of the first step; no-op if the clock runs. REQUIRES: nothing is enqueued yet.
  void start() { last_ns_ = last_ns_ == 0 ? now_ns_() : last_ns_; }
  /// Ends a step. Returns the rank's training time since the start, in ns: waits are included, time
  /// that was set apart is not.
  std::int64_t end_step() { return trained_ns_ += lap(); }
  /// Ends an evaluation, or other work outside steps. Returns its duration, in ns.
  std::int64_t set_apart() { return lap(); }

 private:
  std::int64_t lap() {
    const std::int64_t now_ns = now_ns_();
    return now_ns - std::exchange(last_ns_, now_ns);
  }

  Time now_ns_;
  std::int64_t last_ns_ = 0;
  std::int64_t trained_ns_ = 0;
};

}  // namespace train::actors
