#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/head/prepared_run.hpp"
#include "actors/messages/event_messages.hpp"
#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/sections/recovery_section.hpp"

namespace train::actors {

class ProcessRanks;

/// Which launchers of the other nodes have joined a generation; nodes as they were first numbered,
/// ascending.
struct Membership {
  std::vector<NodeSteps> held;         ///< Of PreparedRun::members but the head's, in their order;
                                       ///< nothing of those that are missing.
  std::vector<std::int64_t> missing;   ///< Members that have not come in time.
  std::vector<std::int64_t> returned;  ///< Nodes that have come and did not take part.
  std::optional<Error> cut;            ///< Why nobody could come: the head's own network.

  [[nodiscard]] bool complete() const { return missing.empty() && !cut; }
  /// Those that took part, and nobody else.
  [[nodiscard]] bool same() const { return complete() && returned.empty(); }
  /// How many there are with the head, without those that are back.
  [[nodiscard]] std::int64_t come() const {
    return static_cast<std::int64_t>(held.size() + 1 - missing.size());
  }
  /// Who is not there, for people: "node 2 has". REQUIRES: not complete().
  [[nodiscard]] std::string missing_have() const;
};

/// For people: "node 2 has", "nodes 1, 2 have". REQUIRES: `nodes` has some.
[[nodiscard]] std::string nodes_have(std::span<const std::int64_t> nodes);

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

/// Starts all ranks of a prepared run, and returns when none of them does anything any more.
using GenerationRunner = std::function<Result<RunFinished>(PreparedRun& run)>;

/// Whether a run whose ranks are lost again and again is worth another start of its job, which a
/// batch system would give it for ever: one of several nodes that has saved something since its
/// job began. `checkpoint`: the newest step that is saved; none: nothing is. Pure.
[[nodiscard]] bool worth_another_job(std::int64_t nodes, std::optional<std::int64_t> checkpoint,
                                     std::int64_t job_first_step);

/// Generations of ranks until the run is over: a rank that is lost ends one of them, not the run.
/// The next one resumes from the newest snapshot or checkpoint, without the nodes that do not come
/// to the meeting, and with those that are back; the run ends where its strategy has no such number
/// of ranks. Where starts are lost without progress one node goes on with fewer ranks, and several
/// end. `others`: none, there are no others. Blocking. Errors: those of `run_generation`, `meet`
/// and find_start_again().
[[nodiscard]] Result<RunFinished> run_generations(PreparedRun& run,
                                                  const GenerationRunner& run_generation,
                                                  ProcessRanks* others = nullptr);

}  // namespace train::actors
