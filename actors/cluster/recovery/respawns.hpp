#pragma once

#include <cstdint>

#include "actors/head/prepared_run.hpp"
#include "configs/recovery_section.hpp"
#include "configs/run_config.hpp"

namespace train::actors {

/// Counts the starts of a run's ranks that were lost one after the other without progress.
class Respawns {
 public:
  Respawns(const configs::RecoverySection& recovery, std::int64_t first_step)
      : limit_(recovery.max_respawns), step_(first_step) {}

  /// Whether all ranks may be started once more, at `step`. After a refusal the count begins anew.
  [[nodiscard]] bool allow(std::int64_t step);

 private:
  std::int64_t limit_;
  std::int64_t step_;
  std::int64_t lost_ = 0;  ///< Starts at step_ that were lost.
};

/// Whether the ranks are processes of their own; else they share the launcher's.
/// `separate_processes`: see RunPlan.
[[nodiscard]] bool in_processes(const configs::ParallelSection& parallel, bool separate_processes);

/// Whether such a run outlives the loss of a rank: its ranks are processes of their own, and it
/// may.
[[nodiscard]] bool can_respawn(const configs::RunConfig& config, bool separate_processes);
[[nodiscard]] inline bool can_respawn(const RunPlan& plan) {
  return can_respawn(plan.config, plan.separate_processes);
}

/// Makes the run one of the largest smaller number of ranks that its configuration allows; false:
/// there is none, or other nodes have ranks. The result of the run stays the same (P1). Blocks
/// (reads the data's headers).
[[nodiscard]] bool take_fewer_ranks(PreparedRun& run);

/// The run as one of `nodes` nodes with the largest number of ranks that its configuration allows,
/// up to so many on each as now, or, of more nodes than now, as when it started. Blocks (reads the
/// data's headers). Errors: none is allowed; why the last was not.
[[nodiscard]] Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes);

/// Makes the run that. Its result stays the same (P1).
[[nodiscard]] Status take_nodes(PreparedRun& run, std::int64_t nodes);

}  // namespace train::actors
