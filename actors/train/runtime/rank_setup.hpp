#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/train/rank_actors.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "checkpoint/format/reference_file.hpp"
#include "checkpoint/save/locations.hpp"
#include "configs/sections/parallel_section.hpp"
#include "storage/rsync.hpp"

namespace train::actors {

/// What a rank restores; neither: initial weights.
struct StartState {
  std::optional<std::filesystem::path> checkpoint = {};  ///< Its directory.
  std::optional<MemoryStart> memory = {};                ///< Comes first.
  /// From initial weights, too, what the run has kept of its reference is read, not computed.
  bool reads_reference = false;
  /// Commands of its sweep that are not given out: an earlier start has done them.
  std::int64_t references_done = 0;
  checkpoint::RunIdentity identity = {};  ///< That the checkpoint is to have; empty: any.
  std::stop_token stop = {};              ///< Ends the reading of the checkpoint.
};

/// What the log-probabilities of the run's reference depend on. Blocks; see weights_fingerprint().
/// Without `with_model` the key says nothing of the weights, and nothing is read.
[[nodiscard]] Result<checkpoint::ReferenceKey> reference_key(const RunPlan& plan, bool with_model);

/// How many commands of the reference's sweep a killed start of the run has done and kept; 0: there
/// is no sweep, or it begins anew. Blocks. Errors: those of reference_key().
[[nodiscard]] Result<std::int64_t> references_done(const RunPlan& plan);

/// One rank of a planned run, ready to be spawned: engine, tokens, and the state restored from a
/// checkpoint; from memory it takes all ranks together: restore_from_memory(). Blocking.
/// `threads`: of its compute stream. `streams`: see StreamKind. Errors: no memory for it, what
/// restore_rank() says.
[[nodiscard]] Result<RankContext> make_rank(const RunPlan& plan, std::int64_t rank,
                                            const StartState& start, int threads,
                                            StreamKind streams = StreamKind::threads);

/// The places of the run in directory `run`, as this process sees them: "auto" is its own
/// $SLURM_TMPDIR.
[[nodiscard]] checkpoint::Locations find_places(const std::filesystem::path& run,
                                                const std::string& local_dir);

/// What a rank does to its disks for a save. Its node's lowest rank makes the local place and
/// removes what killed runs left there. Of `options` what says which rank it is is filled in here.
[[nodiscard]] Result<ShardWork> shard_work(checkpoint::ShardCarrier::Options options,
                                           const configs::ParallelSection& parallel,
                                           std::int64_t rank);

/// All ranks of a planned run in this process, joined by the in-process transport (one rank alone
/// needs none). A start from memory: it is all on this node.
[[nodiscard]] Result<std::vector<RankContext>> make_local_ranks(const RunPlan& plan,
                                                                const StartState& start);

/// Sets up the actor system of ranks in this process: one thread for handlers, which only enqueue.
void set_up_handlers(caf::actor_system_config& config);

/// Ranks that wait for one another's bytes do so no longer.
void cancel_transports(const std::vector<RankContext>& ranks, const std::string& reason);

/// Compute threads of a rank when `neighbours` ranks share this machine.
[[nodiscard]] int threads_per_rank(std::int64_t requested, std::int64_t neighbours);

}  // namespace train::actors
