#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "actors/cluster/network/worker_process.hpp"
#include "actors/cluster/recovery/head_table.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/event_messages.hpp"

// What ended a generation of ranks, and what follows: head_table.hpp says it. Here is what goes
// with an event and is needed for its line. The cluster (for ranks that start) and the conductor
// (for ranks that train) keep a Verdict; the head's launcher adds what the kernel says.
namespace train::actors {

/// A rank that lost another one waits this long for the other's own report.
inline constexpr std::chrono::milliseconds kCauseTime{300};

/// Carries a generation through the table, from one of its states with ranks to an ending one, and
/// keeps the failure that was the cause.
class Verdict {
 public:
  explicit Verdict(HeadState state) : state_(state) {}

  /// `facts`: those of the table that the caller knows.
  HeadStep hear(const RankFailed& failure, HeadFacts facts = {});
  /// kCauseTime after a step that says so.
  HeadStep conclude();
  /// Of other events.
  HeadStep hear(HeadEvent event, HeadFacts facts = {});

  [[nodiscard]] HeadState state() const { return state_; }
  /// The ranks are to end.
  [[nodiscard]] bool over() const;
  /// How they ended, after `step` steps. REQUIRES: over().
  [[nodiscard]] RunFinished outcome(std::int64_t step) const;
  /// The same, of an event that goes with `words`.
  [[nodiscard]] RunFinished outcome(std::int64_t step, const LineWords& words) const;

 private:
  HeadStep take(const HeadStep& step);

  HeadState state_;
  RankFailed cause_;  // or the first in doubt
  HeadStep last_{};   // that ended it
};

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

/// What follows the end of a generation, when `signal` (0: none) has asked the run to stop. Pure.
[[nodiscard]] HeadStep after_ranks(const RunFinished& outcome, const RunPlan& plan, int signal);

/// `outcome` as the step that ends the run says it. REQUIRES: its state is over.
[[nodiscard]] RunFinished ended_by(const HeadStep& step, RunFinished outcome, LineWords words);

}  // namespace train::actors
