#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "actors/train/lanes/lane_source.hpp"
#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "configs/run_config.hpp"
#include "engine/rank/plan/rank_options.hpp"

namespace train::actors {

/// Everything a run needs to know before memory is allocated or a directory is touched. As
/// plan_run() makes it, its ranks are for the whole run; see enter_phase().
struct RunPlan {
  configs::RunConfig config;  ///< With every dimension of the model written out.
  engine::RankOptions engine;
  std::shared_ptr<const LaneSource> data;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest(): ranks must agree on it.
  std::string data_fingerprint;   ///< LaneSource::fingerprint(): ranks must agree on it, too.
  std::vector<std::string> model_notes = {};  ///< PublishedModel::notes of model.from.
  /// The run began on several nodes. A rank that is the only one left is then still a process of
  /// its own, and nodes can come back.
  bool separate_processes = false;
};

/// Of all lanes together.
[[nodiscard]] std::int64_t tokens_per_step(const configs::RunConfig& config);

/// Of one checkpoint, all ranks together.
[[nodiscard]] std::uint64_t checkpoint_bytes(const RunPlan& plan);

/// Opens the data and applies every rule. Blocks on the disk (of the data, as much is read as
/// its fingerprint takes).
/// Errors: user_error naming file or key.
[[nodiscard]] Result<RunPlan> plan_run(const configs::RunConfig& config);

/// The plan of a run that only answers eval.choices: of its data it opens nothing but the
/// tokenizer. Errors: those of plan_run(). REQUIRES: there are choices and an evaluation.
[[nodiscard]] Result<RunPlan> plan_choices(const configs::RunConfig& config);

/// The same run on other numbers of nodes and ranks. Errors: those of plan_run(); a strategy that
/// these ranks cannot have.
[[nodiscard]] Result<RunPlan> plan_with(const RunPlan& now, std::int64_t nodes, std::int64_t ranks);

/// The same on `nodes` nodes, with `each` ranks on each of them or the most below that is allowed.
/// Errors: none is; why not the last.
[[nodiscard]] Result<RunPlan> largest_plan(const RunPlan& now, std::int64_t nodes,
                                           std::int64_t each);

/// Makes the plan one of ranks for the phase of step `step` (from 0), where the run keeps state by
/// phase; else it stays one of ranks for the whole run. Errors: ShardPlan::make.
[[nodiscard]] Status enter_phase(RunPlan& plan, std::int64_t step);

/// The engine's options of a configuration, for a vocabulary of `dataset_vocab` (0: unknown).
[[nodiscard]] Result<engine::RankOptions> engine_options(const configs::RunConfig& config,
                                                         std::int64_t dataset_vocab);

/// Compute threads: `requested`, or all cores this process may use.
[[nodiscard]] int resolve_threads(std::int64_t requested);

/// Ranks in processes may open as many files as they need on this machine, whose soft limit it
/// raises. Errors (user): the hard limit is too low.
[[nodiscard]] Status check_descriptors(const configs::ParallelSection& parallel);

/// What `--dry-run` prints: parameters, FLOPs per token, memory by kind, steps and tokens.
[[nodiscard]] std::string describe_plan(const RunPlan& plan);

/// Whether data.dir holds the tokens that a checkpoint was trained on: one line that names the
/// checkpoint in directory `checkpoint` and data.dir, with the fingerprints of both, if they
/// differ. Empty: they are the same, or the checkpoint, of an earlier version, does not say.
[[nodiscard]] std::string data_difference(const checkpoint::ManifestFields& saved,
                                          const std::filesystem::path& checkpoint,
                                          const RunPlan& plan);

/// The same of the checkpoint's manifest. Blocks. Errors: those of read_manifest().
[[nodiscard]] Result<std::string> data_difference(const std::filesystem::path& checkpoint,
                                                  const RunPlan& plan);

/// Whether the ranks are processes of their own; else they share the launcher's.
/// `separate_processes`: see RunPlan.
[[nodiscard]] bool in_processes(const configs::ParallelSection& parallel, bool separate_processes);

/// Whether such a run outlives the loss of a rank: its ranks are processes of their own, and it
/// may.
[[nodiscard]] bool can_respawn(const configs::RunConfig& config, bool separate_processes);
[[nodiscard]] inline bool can_respawn(const RunPlan& plan) {
  return can_respawn(plan.config, plan.separate_processes);
}

/// Whether the ranks of this run keep snapshots in memory: it may recover from them.
[[nodiscard]] bool keeps_in_memory(const RunPlan& plan);

/// Whether each node keeps the snapshots of the node before it, too.
[[nodiscard]] bool has_buddies(const RunPlan& plan);

/// How many times a node of the run keeps each shard that it has room for: its own, and as a buddy
/// those of another node. 0: the run keeps no snapshots in memory.
[[nodiscard]] std::int64_t memory_slots(const RunPlan& plan);

}  // namespace train::actors
