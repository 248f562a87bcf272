#pragma once

#include <chrono>
#include <thread>

namespace train::test {

/// Limit on a test's wait for an expected event: turns a hang into a failure, and is long enough to
/// be no speed requirement on a busy machine.
inline constexpr std::chrono::seconds hang_limit{300};

/// Exceeds every wait of a test: time-out of an operation that must end without it.
inline constexpr std::chrono::seconds beyond_hang_limit{1200};

/// Pause between polls of a state without a blocking call: a file or output of another process, an
/// object without notifications. Long enough to free the processor.
inline void before_the_next_look() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

/// Waits until `condition` holds; returns false after `limit`.
template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds limit = hang_limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return condition();
    }
    before_the_next_look();
  }
  return true;
}

}  // namespace train::test
