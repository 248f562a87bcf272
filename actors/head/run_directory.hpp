#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.hpp"
#include "configs/key_changes.hpp"
#include "configs/run_config.hpp"
#include "storage/files/run_lock.hpp"

namespace train::actors {

/// The directory of one run, locked against a second process for as long as this lives.
struct RunDirectory {
  std::filesystem::path root;
  storage::RunLock lock;
  bool existed = false;  ///< A run of this name had begun before.
  /// What the configuration says otherwise than at the start before, all of it allowed.
  std::vector<configs::KeyChange> changes = {};

  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path index() const { return root / "index"; }
  [[nodiscard]] std::filesystem::path config_file() const { return root / "config.toml"; }
};

/// Where the profile of the run in `root` lies: rank-<r>.json, trace.json, summary.json.
[[nodiscard]] std::filesystem::path profile_directory(const std::filesystem::path& root);

/// <run.dir>/<run.name>.
[[nodiscard]] std::filesystem::path run_root(const configs::RunConfig& config);

/// The lock of the run in `root`, for whoever changes what is there. The process ends at once, as
/// if it had been killed, when another one has taken the run over. Errors: those of
/// RunLock::acquire().
[[nodiscard]] Result<storage::RunLock> lock_run(const std::filesystem::path& root);

/// Creates or re-opens <run.dir>/<run.name>. With `fresh` the first free name of <run.name>,
/// <run.name>-2, -3 ... is created, and nothing that exists is touched. A new one gets its
/// configuration; one that existed keeps what it has until store_config(). Another configuration
/// than that is no error where no step was ever finished: no checkpoint, no step in metrics.jsonl
/// or the journal. Errors (user): not writable; in use; the directory holds something else, or a
/// run of another configuration in a key that stays (BetweenStarts; names the first one, both
/// values and the fix).
[[nodiscard]] Result<RunDirectory> open_run_directory(const configs::RunConfig& config, bool fresh);

/// The newest step that metrics.jsonl of the run in `root` has; 0: none, or it cannot be read.
/// Blocks.
[[nodiscard]] std::int64_t newest_step_in_metrics(const std::filesystem::path& root);

/// Writes config.toml: the configuration that resumes this very run. Errors: those of AtomicFile.
[[nodiscard]] Status store_config(const RunDirectory& directory, const configs::RunConfig& config);

}  // namespace train::actors
