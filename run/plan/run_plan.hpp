#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/lane_source.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "run/model/sample_set.hpp"

namespace train::run {

/// Result of checking a run before memory is allocated or a directory is touched. plan_run() makes
/// a plan for ranks of the whole run; see enter_phase().
struct RunPlan {
  configs::RunConfig config;  ///< With every dimension of the model written out.
  engine::RankOptions engine;
  std::shared_ptr<const data::LaneSource> data;
  std::uint64_t plan_digest = 0;  ///< ShardPlan::digest(): ranks must agree on it.
  std::string data_fingerprint;   ///< LaneSource::fingerprint(): ranks must agree on it, too.
  /// Texts that the run samples while it trains; null: none, or this process needs none
  /// (open_samples()).
  std::shared_ptr<const SampleSet> samples = {};
  std::vector<std::string> model_notes = {};  ///< PublishedModel::notes of model.from.
  /// True if the run began on several nodes. A last remaining rank is then still a process of its
  /// own, and nodes can rejoin.
  bool separate_processes = false;
};

/// Passes of a step that read rows of the data: 1 or 2.
[[nodiscard]] std::int64_t passes_with_rows(const configs::RunConfig& config);

/// Tokens of all lanes together.
[[nodiscard]] std::int64_t tokens_per_step(const configs::RunConfig& config);

/// Bytes of one checkpoint, all ranks together.
[[nodiscard]] std::uint64_t checkpoint_bytes(const RunPlan& plan);

/// Opens the data and applies every rule. Blocks on the disk (reads as much of the data as its
/// fingerprint needs). Errors: user_error naming file or key.
[[nodiscard]] Result<RunPlan> plan_run(const configs::RunConfig& config);

/// Tokenizes the prompts of a run that samples texts while it trains; only the head, which appends
/// sampled tokens to the texts, needs them. No-op for other runs. Blocks. Errors (user): those of
/// SampleSet::open.
[[nodiscard]] Status open_samples(RunPlan& plan);

/// Plans a run that only answers eval.choices: opens only the data's tokenizer. Errors: those of
/// plan_run(). REQUIRES: there are choices and an evaluation.
[[nodiscard]] Result<RunPlan> plan_choices(const configs::RunConfig& config);

/// Plans a run without its data, for a vocabulary of `vocab` tokens. The plan leaves out memory per
/// document of the data, some bytes each. Errors: those of plan_run(), none of the data.
[[nodiscard]] Result<RunPlan> plan_without_data(configs::RunConfig config, std::int64_t vocab);

/// Plans the same run on other numbers of nodes and ranks. Errors: those of plan_run(); the
/// strategy is not possible with these ranks.
[[nodiscard]] Result<RunPlan> plan_with(const RunPlan& now, std::int64_t nodes, std::int64_t ranks);

/// Plans the run on `nodes` nodes, with the largest allowed number of ranks per node up to `each`.
/// Errors: no number is allowed; says why the last was not.
[[nodiscard]] Result<RunPlan> largest_plan(const RunPlan& now, std::int64_t nodes,
                                           std::int64_t each);

/// Restricts the plan to the phase of step `step` (from 0), if the run keeps state per phase; else
/// the plan stays for the whole run. Errors: ShardPlan::make.
[[nodiscard]] Status enter_phase(RunPlan& plan, std::int64_t step);

/// Engine options of a configuration, for a vocabulary of `dataset_vocab` (0: unknown).
[[nodiscard]] Result<engine::RankOptions> engine_options(const configs::RunConfig& config,
                                                         std::int64_t dataset_vocab);

/// Compute threads: `requested`, or all cores that this process may use.
[[nodiscard]] int resolve_threads(std::int64_t requested);

/// Compute threads of a rank when `neighbours` ranks share this machine.
[[nodiscard]] int threads_per_rank(std::int64_t requested, std::int64_t neighbours);

/// Checks that rank processes may open enough files on this machine, and raises the soft limit.
/// Errors (user): the hard limit is too low.
[[nodiscard]] Status check_descriptors(const configs::ParallelSection& parallel);

/// Times that the whole run reads its training rows.
[[nodiscard]] double epochs_of(const RunPlan& plan);

/// Compares data.dir with the tokens that a checkpoint was trained on: if they differ, one line
/// that names the checkpoint in directory `checkpoint` and data.dir, with both fingerprints. Empty:
/// they are equal, or the checkpoint, of an earlier version, has no fingerprint.
[[nodiscard]] std::string data_difference(const checkpoint::ManifestFields& saved,
                                          const std::filesystem::path& checkpoint,
                                          const RunPlan& plan);

/// Reads the checkpoint's manifest and compares. Blocks. Errors: those of read_manifest().
[[nodiscard]] Result<std::string> data_difference(const std::filesystem::path& checkpoint,
                                                  const RunPlan& plan);

/// True if the ranks are processes of their own; else they share the launcher's.
/// `separate_processes`: see RunPlan.
[[nodiscard]] bool in_processes(const configs::ParallelSection& parallel, bool separate_processes);

/// True if such a run survives the loss of a rank: its ranks are processes, and respawning is
/// enabled.
[[nodiscard]] bool can_respawn(const configs::RunConfig& config, bool separate_processes);
[[nodiscard]] inline bool can_respawn(const RunPlan& plan) {
  return can_respawn(plan.config, plan.separate_processes);
}

/// True if the ranks of this run keep snapshots in memory to recover from.
[[nodiscard]] bool keeps_in_memory(const RunPlan& plan);

/// True if each node also keeps the snapshots of the node before it.
[[nodiscard]] bool has_buddies(const RunPlan& plan);

/// Copies of each shard that a node has room for: its own, and as a buddy those of another node. 0:
/// the run keeps no snapshots in memory.
[[nodiscard]] std::int64_t memory_slots(const RunPlan& plan);

}  // namespace train::run
