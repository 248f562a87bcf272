#pragma once

#include <chrono>
#include <cstdint>

namespace train {

/// Now, by the clock that never goes back: ns since some fixed time.
[[nodiscard]] inline std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace train
