#pragma once

#include <chrono>
#include <cstdint>

namespace train {

/// Current time of the monotonic clock, ns.
[[nodiscard]] inline std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace train
