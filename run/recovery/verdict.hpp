#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/exit_codes.hpp"
#include "run/recovery/head_table.hpp"
#include "run/recovery/outcome.hpp"

// Cause of a generation's end, and what follows, according to head_table.hpp; this file holds the
// data of an event that its line needs. The cluster (while ranks start), the conductor (while ranks
// train) and run_generations() (for the rest) keep a Verdict; the head's launcher adds the kernel's
// reports.
namespace train::run {

/// A rank that lost another one waits this long for the other's own report.
inline constexpr std::chrono::milliseconds kCauseTime{300};

/// State of the head, or of a generation of its ranks, in the table, with the data of the event
/// that ended it.
class Verdict {
 public:
  explicit Verdict(HeadState state) : state_(state) {}

  /// `facts`: facts known to the caller. `words`, `told`: data for the event's line and exit code.
  HeadStep hear(HeadEvent event, HeadFacts facts = {}, LineWords words = {},
                std::int32_t told = kExitFailure);
  /// Handles a failure, an event with its own words.
  HeadStep hear(const RankFailed& failure, HeadFacts facts = {});
  /// Called kCauseTime after a step that requests it.
  HeadStep conclude();

  [[nodiscard]] HeadState state() const { return state_; }
  /// True while ranks start.
  [[nodiscard]] bool starts() const {
    return state_ == HeadState::starting || state_ == HeadState::start_doubt;
  }
  /// True if the ranks are to end, or the run is over.
  [[nodiscard]] bool over() const { return state_ > HeadState::doubt; }
  /// Result after `step` steps. REQUIRES: over().
  [[nodiscard]] RunFinished outcome(std::int64_t step) const;

 private:
  HeadState state_;
  bool doubt_lost_ = false;  // HeadFact::lost.
  // Words of the event that ended it, or of the first in doubt.
  LineWords words_;
  std::int32_t told_ = kExitFailure;
  HeadStep last_{};  // Step that ended it.
};

/// Result for a failed part of the head while ranks run.
[[nodiscard]] RunFinished head_failure(std::int64_t step, std::string text);

/// First worker of this node that was ended by a signal. Other ranks may report its loss before the
/// kernel reports the signal: a large process takes time to end. Thread-safe.
class FirstLoss {
 public:
  void hear(const WorkerEnd& end);
  /// `outcome` with the cause in place of its consequence.
  [[nodiscard]] RunFinished cause_of(RunFinished outcome) const;

 private:
  mutable std::mutex mutex_;
  std::optional<WorkerEnd> end_;
};

}  // namespace train::run
