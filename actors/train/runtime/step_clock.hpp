#pragma once

#include <cstdint>
#include <utility>

namespace train::actors {

/// Measures a rank's steps where they are computed: what a message of them takes to reach the head
/// is not in it. Runs on the compute stream.
class StepClock {
 public:
  /// From here the first step counts; nothing if the clock runs. REQUIRES: nothing is enqueued yet.
  void start(std::int64_t now_ns) { last_ns_ = last_ns_ == 0 ? now_ns : last_ns_; }
  /// Since the last lap, or the start.
  std::int64_t lap(std::int64_t now_ns) { return now_ns - std::exchange(last_ns_, now_ns); }

 private:
  std::int64_t last_ns_ = 0;  // steady
};

}  // namespace train::actors
