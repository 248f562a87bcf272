#pragma once

#include <algorithm>
#include <chrono>

namespace train::cli {

/// Lets through so many a second, and a burst of some after a rest; who comes faster waits for his
/// turn. Pure: knows no clock.
class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  /// REQUIRES: `per_second` and `burst` are at least 1.
  constexpr Pace(int per_second, int burst)
      : interval_(Duration(std::chrono::seconds(1)) / per_second), rest_(interval_ * (burst - 1)) {}

  /// One comes at `now`, not before the one before it: how long it waits for its turn.
  constexpr Duration take(Time now) {
    const Time turn = std::max(next_, now - rest_);
    next_ = turn + interval_;
    return std::max(turn - now, Duration::zero());
  }

 private:
  Duration interval_, rest_;
  Time next_{};  // the earliest turn of the next, had it come in time
};

}  // namespace train::cli
