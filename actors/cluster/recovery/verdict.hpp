#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "actors/cluster/network/worker_process.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/event_messages.hpp"

// Why a generation of ranks ended, and what follows: judged here and nowhere else. The cluster (for
// ranks that start) and the conductor (for ranks that train) ask FailureVerdict which failure was
// the cause; the head's launcher corrects the answer by what the kernel says (FirstLoss); that
// launcher, run_generations() and the launchers of other nodes ask what follows.
namespace train::actors {

/// A rank that lost another one waits this long for the other's own report.
inline constexpr std::chrono::milliseconds kCauseTime{300};

/// Finds the cause among the failures of one generation: the first that is not a consequence of
/// another one; or the first consequence, if no cause is heard of within kCauseTime.
class FailureVerdict {
 public:
  enum class Heard : std::uint8_t {
    cause,        ///< The generation is over.
    consequence,  ///< Call conclude() after kCauseTime.
    nothing_new,  ///< The cause is known, or its time runs already.
  };
  [[nodiscard]] Heard hear(const RankFailed& failure);
  /// False: the cause has been heard of meanwhile.
  [[nodiscard]] bool conclude();

  /// Whether any failure has been heard of.
  [[nodiscard]] bool pending() const { return consequence_ || cause_; }
  /// None: not decided.
  [[nodiscard]] const std::optional<RankFailed>& cause() const { return cause_; }

 private:
  std::optional<RankFailed> consequence_;
  std::optional<RankFailed> cause_;
};

/// The end, after `step` steps, of ranks that trained. `cause`: see FailureVerdict; the loss of a
/// rank or of its connections ends the generation, another failure the run.
[[nodiscard]] RunFinished ended_by(const RankFailed& cause, std::int64_t step);

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

enum class Next : std::uint8_t { run_over, stopped_by_signal, next_generation };

/// What follows the end of a generation, when `signal` (0: none) has asked the run to stop. Pure.
[[nodiscard]] Next next_after(const RunFinished& outcome, const RunPlan& plan, int signal);

/// How a generation of ranks ended for the launcher of a node that is not the head's.
struct NodeEnd {
  bool again = false;  ///< To be followed by the next one, if the head comes to it.
  int exit_code = 1;
  std::string warning = {};  ///< To be said of it; empty: nothing.
  std::string error = {};
};

/// `in_order`: all ranks of `node` have started, and ended by themselves. `over`: what the head
/// said, if it did; `head_lost`: it has ended or cannot be reached. Pure.
[[nodiscard]] NodeEnd node_end(std::int64_t node, bool in_order,
                               const std::optional<GenerationOver>& over, bool head_lost,
                               const RunPlan& plan);

}  // namespace train::actors
