#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "actors/train/rank_actors.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "checkpoint/format/reference_file.hpp"
#include "checkpoint/save/locations.hpp"
#include "configs/sections/parallel_section.hpp"
#include "run/memory/node_memory.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/rsync.hpp"

namespace train::actors {

/// Source of a rank's state; neither: initial weights.
struct StartState {
  std::optional<std::filesystem::path> checkpoint = {};  ///< Directory of the checkpoint.
  std::optional<run::MemoryStart> memory = {};           ///< Takes precedence.
  /// True to read the run's stored reference instead of computing it, even from initial weights.
  bool reads_reference = false;
  /// Commands of the reference sweep to skip: an earlier start has done them.
  std::int64_t references_done = 0;
  checkpoint::RunIdentity identity = {};  ///< Expected identity of the checkpoint; empty: any.
  std::stop_token stop = {};              ///< Ends the reading of the checkpoint.
};

/// Makes one rank of a planned run, ready to be spawned: engine, tokens, and the state restored
/// from a checkpoint; restoring from memory needs all ranks together: restore_from_memory().
/// Blocking. `threads`: threads of its compute stream. `streams`: see StreamKind. Errors: out of
/// memory; those of restore_rank().
[[nodiscard]] Result<RankContext> make_rank(const run::RunPlan& plan, std::int64_t rank,
                                            const StartState& start, int threads,
                                            StreamKind streams = StreamKind::threads);

/// Disk work of a rank for a save. The lowest rank of a node makes the local location and removes
/// leftovers of killed runs there. The fields of `options` that identify the rank are filled in
/// here.
[[nodiscard]] Result<ShardWork> shard_work(checkpoint::ShardCarrier::Options options,
                                           const configs::ParallelSection& parallel,
                                           std::int64_t rank);

/// Makes all ranks of a planned run in this process, connected by the in-process transport (unless
/// there is only one). A start from memory has all snapshots on this node.
[[nodiscard]] Result<std::vector<RankContext>> make_local_ranks(const run::RunPlan& plan,
                                                                const StartState& start);

/// Configures the actor system of ranks in this process: one thread for handlers, which only
/// enqueue.
void set_up_handlers(caf::actor_system_config& config);

/// Cancels the ranks' waits for one another's bytes.
void cancel_transports(const std::vector<RankContext>& ranks, const std::string& reason);

}  // namespace train::actors
