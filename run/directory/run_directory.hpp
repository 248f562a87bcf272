#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/save/locations.hpp"
#include "configs/key_changes.hpp"
#include "configs/run_config.hpp"
#include "run/directory/config_record.hpp"
#include "storage/files/run_lock.hpp"

namespace train::run {

/// Directory of a run, locked against other processes during the lifetime of this object.
struct RunDirectory {
  std::filesystem::path root;
  storage::RunLock lock;
  bool existed = false;  ///< A run of this name had begun before.
  /// Allowed config changes since the start before.
  std::vector<configs::KeyChange> changes = {};
  /// data.sources of the start before, if they are among the changes.
  std::optional<std::vector<configs::DataSource>> sources_before = {};
  std::filesystem::path set_aside = {};       ///< Directory of the earlier run; empty: none.
  std::optional<ConfigRecord> recorded = {};  ///< Newest record in the index.

  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path index() const { return root / "index"; }
  [[nodiscard]] std::filesystem::path config_file() const { return root / "config.toml"; }
};

/// Directory of the profile of the run in `root`: rank-<r>.json, trace.json, summary.json.
[[nodiscard]] std::filesystem::path profile_directory(const std::filesystem::path& root);

/// <run.dir>/<run.name>.
[[nodiscard]] std::filesystem::path run_root(const configs::RunConfig& config);

/// Locks the run in `root` before it is modified. If another process takes the run over, this
/// process ends at once, as if killed. Errors: those of RunLock::acquire().
[[nodiscard]] Result<storage::RunLock> lock_run(const std::filesystem::path& root);

/// Creates or re-opens <run.dir>/<run.name>. With `fresh` an existing one is first renamed to the
/// first free name of <run.name>-2, -3 ...; nothing else of it changes. A new one gets its
/// configuration; an existing one keeps its own until store_config(): the one recorded in the
/// index, or in config.toml if there is none. A different configuration is no error if no step was
/// ever finished: no checkpoint, no step in metrics.jsonl or the journal. Errors (user): not
/// writable; in use; the directory holds something else, or a run with another value of a fixed
/// key (BetweenStarts; names the first one, both values and the fix) that is not in `accepted`.
[[nodiscard]] Result<RunDirectory> open_run_directory(const configs::RunConfig& config, bool fresh,
                                                      std::span<const std::string> accepted = {});

/// Newest step in metrics.jsonl of the run in `root`; 0: none, or unreadable. Blocks.
[[nodiscard]] std::int64_t newest_step_in_metrics(const std::filesystem::path& root);

/// Content of config.toml: the configuration that resumes this run.
[[nodiscard]] std::string config_text(const RunDirectory& directory,
                                      const configs::RunConfig& config);

/// Writes config.toml. Errors: those of AtomicFile.
[[nodiscard]] Status store_config(const RunDirectory& directory, const configs::RunConfig& config);

/// Locations of the run in directory `run`, as seen by this process: "auto" is its own
/// $SLURM_TMPDIR.
[[nodiscard]] checkpoint::Locations find_places(const std::filesystem::path& run,
                                                const std::string& local_dir);

}  // namespace train::run
