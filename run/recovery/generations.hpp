#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/sections/recovery_section.hpp"
#include "run/events/outcome.hpp"
#include "run/memory/snapshot_places.hpp"
#include "run/prepared_run.hpp"

namespace train::run {

/// Launchers of other nodes that have joined a generation; nodes by their original numbers,
/// ascending.
struct Membership {
  std::vector<NodeSteps> held;         ///< For RunNodes::members except the head's, in their
                                       ///< order; empty for missing ones.
  std::vector<std::int64_t> missing;   ///< Members that did not come in time.
  std::vector<std::int64_t> returned;  ///< Nodes that have come and did not take part before.
  std::optional<Error> cut;  ///< Failure of the head's own network, so that no node could come.

  [[nodiscard]] bool complete() const { return missing.empty() && !cut; }
  /// True if exactly the nodes that took part have come.
  [[nodiscard]] bool same() const { return complete() && returned.empty(); }
  /// Number of nodes including the head, without returned ones.
  [[nodiscard]] std::int64_t come() const {
    return static_cast<std::int64_t>(held.size() + 1 - missing.size());
  }
  /// Missing nodes as text: "node 2". REQUIRES: not complete().
  [[nodiscard]] std::string missing_names() const;
};

/// The other nodes of a run, for run_generations(). All calls block.
class OtherNodes {
 public:
  virtual ~OtherNodes() = default;

  /// Waits for their launchers, at most recovery.start_wait_s (first generation) or node_wait_s,
  /// and until a signal. Errors, only in the first generation: this node's network cannot be
  /// opened.
  [[nodiscard]] virtual Result<Membership> meet() = 0;
  /// After meet(): sets RunNodes::members to `members`. If they are unchanged, every node gets
  /// the snapshots it lacks, if the run resumes from them. Otherwise the run has been set up for
  /// that number of nodes, and each takes its position. Errors: a node did not get them, or lacks
  /// room.
  [[nodiscard]] virtual Status place(std::span<const std::int64_t> members) = 0;
  /// Makes the launchers join the next generation.
  virtual void join_again() = 0;
  /// Makes the launchers end with this code. Returns when they have, after a few seconds at most.
  virtual void end(std::int32_t exit_code) = 0;
};

/// Nodes as text: "node 2", "nodes 1, 2". REQUIRES: `nodes` is not empty.
[[nodiscard]] std::string node_names(std::span<const std::int64_t> nodes);

/// Counts consecutive starts of a run's ranks that were lost without progress.
class Respawns {
 public:
  Respawns(const configs::RecoverySection& recovery, std::int64_t first_step)
      : limit_(recovery.max_respawns), step_(first_step) {}

  /// True if all ranks may be started once more, at `step`. After a refusal the count restarts.
  [[nodiscard]] bool allow(std::int64_t step);

 private:
  std::int64_t limit_;
  std::int64_t step_;
  std::int64_t lost_ = 0;  ///< Lost starts at step_.
};

/// Starts all ranks of a prepared run, and returns when all of them have ended.
using GenerationRunner = std::function<Result<RunFinished>(PreparedRun& run)>;

/// True if a run whose ranks are lost repeatedly should be requeued, which a batch system would
/// repeat for ever: only a run of several nodes that has saved a newer checkpoint since its job
/// began. `checkpoint`: newest saved step; nullopt: none. Pure.
[[nodiscard]] bool worth_another_job(std::int64_t nodes, std::optional<std::int64_t> checkpoint,
                                     std::int64_t job_first_step);

/// Runs generations of ranks until the run is over: a lost rank ends a generation, not the run. The
/// next one resumes from the newest snapshot or checkpoint, without nodes that do not come to the
/// meeting, and with those that have returned; the run ends if its strategy does not support that
/// number of ranks. If starts are lost without progress, one node continues with fewer ranks, and
/// several end. `others`: null if there are no other nodes. Blocking. Errors: those of
/// `run_generation`, `meet` and find_start_again().
[[nodiscard]] Result<RunFinished> run_generations(PreparedRun& run,
                                                  const GenerationRunner& run_generation,
                                                  OtherNodes* others = nullptr);

}  // namespace train::run
