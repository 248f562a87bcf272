#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/steady_time.hpp"

namespace train::actors {

/// Measures a rank's steps where they are computed: what a message of them takes to reach the head
/// is not in it. Runs on the compute stream.
class StepClock {
 public:
  /// ns since some fixed time; never goes back.
  using Time = std::function<std::int64_t()>;

  explicit StepClock(Time now_ns = steady_now_ns) : now_ns_(std::move(now_ns)) {}

  /// From here the first step counts; nothing if the clock runs. REQUIRES: nothing is enqueued yet.
  void start() { last_ns_ = last_ns_ == 0 ? now_ns_() : last_ns_; }
  /// A step ends: how long the rank has trained since the start, in ns. What it waited for is in
  /// it, what was set apart is not.
  std::int64_t end_step() { return trained_ns_ += lap(); }
  /// An evaluation, or what else is no part of a step, ends: how long it took, in ns.
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
