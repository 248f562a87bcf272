#pragma once

#include <algorithm>
#include <chrono>

namespace train::cli {

/// Rate limiter: so many events per second, with a burst after a pause; faster ones must wait.
/// Pure: reads no clock.
class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  /// REQUIRES: `per_second` and `burst` are at least 1.
  constexpr Pace(int per_second, int burst)
      : interval_(Duration(std::chrono::seconds(1)) / per_second), rest_(interval_ * (burst - 1)) {}

  /// Registers an event at `now`, not before the previous one, and returns how long it must wait.
  constexpr Duration take(Time now) {
    const Time turn = std::max(next_, now - rest_);
    next_ = turn + interval_;
    return std::max(turn - now, Duration::zero());
  }

 private:
  Duration interval_, rest_;
  Time next_{};  // Earliest regular time of the next event.
};

}  // namespace train::cli
