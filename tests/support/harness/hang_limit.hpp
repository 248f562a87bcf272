#pragma once

#include <chrono>
#include <thread>

namespace train::test {

/// How long a test waits for what must come: a guard that turns a hang into a failure, so long that
/// no machine, however busy, makes it a statement on speed.
inline constexpr std::chrono::seconds hang_limit{120};

/// Longer than a test waits for anything: the time-out of what a test shows to end without it.
inline constexpr std::chrono::seconds beyond_hang_limit{600};

/// Between two looks at what no call can wait for: a file or an output that another process writes,
/// the state of an object that tells nobody of its changes. Long enough to leave it the processor.
inline void before_the_next_look() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

/// Waits until `condition` holds; false if it does not within `limit`.
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
