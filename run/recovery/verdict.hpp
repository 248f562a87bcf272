#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/exit_codes.hpp"
#include "run/events/outcome.hpp"
#include "run/program/program_end.hpp"
#include "run/recovery/head_table.hpp"

// Cause of a generation's end, and what follows. Everything heard of a generation is judged here,
// by head_table.hpp: reports of ranks and nodes, signals, the program's end, the kernel's words.
// The cluster (while ranks start), the conductor (while ranks train) and run_generations() (for the
// rest) say what they have heard and carry out the actions.
namespace train::run {

/// After a rank's loss its own report, or its node's, is waited for so long; longer if only another
/// rank has said so, which may be lost for the same reason: a loaded node's report comes late.
inline constexpr std::chrono::milliseconds kCauseTime{300};
inline constexpr std::chrono::milliseconds kHearsayTime{1000};

/// State of the head, or of a generation of its ranks, in the table, with the data of the event
/// that ended it.
class Verdict {
 public:
  explicit Verdict(HeadState state) : state_(state) {}

  /// A rank has failed. `ranks`: number of ranks; a single one is the cause itself.
  HeadStep failed(const RankFailed& failure, std::size_t ranks);
  HeadStep launcher_lost(std::int64_t node);
  /// All ranks have started. `signalled`: a stop signal came meanwhile.
  HeadStep ready(bool signalled);
  /// A stop signal. `in_memory`: the ranks resume from memory, ahead of any checkpoint.
  HeadStep signal(int signal, bool in_memory = false);
  /// Returned nodes are to take part now. `steps_left`: the program has further steps.
  HeadStep nodes_wait(bool steps_left);
  HeadStep program_over(const ProgramEnd& end);
  /// A part of the head itself has failed.
  HeadStep head_failed(std::string text);
  /// Time to wait after a step that requests it.
  [[nodiscard]] std::chrono::milliseconds cause_time() const {
    return hearsay_ ? kHearsayTime : kCauseTime;
  }
  /// No cause was reported in that time.
  HeadStep conclude();
  /// Any event, for the head between generations. `facts`: facts known to the caller. `words`,
  /// `told`: data for the event's line and exit code.
  HeadStep hear(HeadEvent event, HeadFacts facts = {}, LineWords words = {},
                std::int32_t told = kExitFailure);

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
  // The words are those of a rank that has lost another, which may have lost a third; the head's
  // own loss of a rank says more.
  bool hearsay_ = false;
  // Words of the event that ended it, or of one in doubt.
  LineWords words_;
  std::int32_t told_ = kExitFailure;
  HeadStep last_{};  // Step that ended it.
};

/// True if a launcher that comes while ranks train may wait for a place. `welcome`: one more node
/// would have one.
[[nodiscard]] bool may_wait(bool welcome);

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
