#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "actors/cluster/recovery/membership.hpp"
#include "actors/head/prepared_run.hpp"
#include "actors/messages/event_messages.hpp"

namespace train::actors {

/// Starts all ranks of a prepared run, and returns when none of them does anything any more.
using GenerationRunner = std::function<Result<RunFinished>(PreparedRun& run)>;

/// How the launchers of the other nodes are led from one generation to the next, run.generation.
struct OtherNodes {
  /// Waits for them. When all have come, no rank of the run runs anywhere.
  std::function<Result<Membership>(const PreparedRun& run)> meet;
  /// Every node gets what it lacks of the snapshots in memory to resume from. Errors: not all do.
  std::function<Status(PreparedRun& run)> restore;
  /// These nodes are all from here on: `run` has been made one of so many, and each takes its place
  /// in it. `left`: the places until now of those that took part; `returned`: the others, as
  /// Membership has them. Errors: not all have room for what `run` resumes from.
  std::function<Status(PreparedRun& run, std::span<const std::int64_t> left,
                       std::span<const std::int64_t> returned)>
      go_on_with;
};

/// Whether a run whose ranks are lost again and again is worth another start of its job, which a
/// batch system would give it for ever: one of several nodes that has saved something since its
/// job began. `checkpoint`: the newest step that is saved; none: nothing is. Pure.
[[nodiscard]] bool worth_another_job(std::int64_t nodes, std::optional<std::int64_t> checkpoint,
                                     std::int64_t job_first_step);

/// Generations of ranks until the run is over: a rank that is lost ends one of them, not the run.
/// The next one resumes from the newest snapshot or checkpoint, without the nodes that do not come
/// to the meeting, and with those that are back; the run ends where its strategy has no such number
/// of ranks. Where starts are
/// lost without progress one node goes on with fewer ranks, and several end. `others`: none, there
/// are no others. Blocking. Errors: those of `run_generation`, `meet` and find_start_again().
[[nodiscard]] Result<RunFinished> run_generations(PreparedRun& run,
                                                  const GenerationRunner& run_generation,
                                                  const std::optional<OtherNodes>& others = {});

}  // namespace train::actors
