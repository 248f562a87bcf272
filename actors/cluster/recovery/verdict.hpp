#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "actors/cluster/network/worker_process.hpp"
#include "actors/cluster/recovery/head_table.hpp"
#include "actors/messages/event_messages.hpp"
#include "base/exit_codes.hpp"

// What ended a generation of ranks, and what follows: head_table.hpp says it. Here is what goes
// with an event and is needed for its line. The cluster (for ranks that start), the conductor (for
// ranks that train) and run_generations() (for the rest) keep a Verdict; the head's launcher adds
// what the kernel says.
namespace train::actors {

/// A rank that lost another one waits this long for the other's own report.
inline constexpr std::chrono::milliseconds kCauseTime{300};

/// Carries the head, or a generation of its ranks, through the table, and keeps what goes with the
/// event that ended it.
class Verdict {
 public:
  explicit Verdict(HeadState state) : state_(state) {}

  /// `facts`: those of the table that the caller knows. `words`, `told`: what the event's line and
  /// exit code are made of.
  HeadStep hear(HeadEvent event, HeadFacts facts = {}, LineWords words = {},
                std::int32_t told = kExitFailure);
  /// Of a failure, which is an event with words of its own.
  HeadStep hear(const RankFailed& failure, HeadFacts facts = {});
  /// kCauseTime after a step that says so.
  HeadStep conclude();

  [[nodiscard]] HeadState state() const { return state_; }
  /// Ranks start.
  [[nodiscard]] bool starts() const {
    return state_ == HeadState::starting || state_ == HeadState::start_doubt;
  }
  /// The ranks are to end, or the run is over.
  [[nodiscard]] bool over() const { return state_ > HeadState::doubt; }
  /// How it ended, after `step` steps. REQUIRES: over().
  [[nodiscard]] RunFinished outcome(std::int64_t step) const;

 private:
  HeadState state_;
  bool doubt_lost_ = false;  // HeadFact::lost
  // What goes with the event that ended it, or with the first in doubt.
  LineWords words_;
  std::int32_t told_ = kExitFailure;
  HeadStep last_{};  // that ended it
};

/// Of a part of the head that has failed while ranks run.
[[nodiscard]] RunFinished head_failure(std::int64_t step, std::string text);

/// The first worker of this node that a signal ended. The others may say sooner that they have lost
/// it than the kernel says how: a large process takes its time to die. Thread-safe.
class FirstLoss {
 public:
  void hear(const WorkerEnd& end);
  /// `outcome`, with the cause instead of what followed from it.
  [[nodiscard]] RunFinished cause_of(RunFinished outcome) const;

 private:
  mutable std::mutex mutex_;
  std::optional<WorkerEnd> end_;
};

}  // namespace train::actors
