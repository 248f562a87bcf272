#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/index/index_view.hpp"
#include "checkpoint/load/reader.hpp"
#include "configs/run_config.hpp"

// Files of a run in its directory, for commands that read them. All reads block.
namespace train::cli {

/// Directory of a run, with its checkpoints.
struct StoredRun {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path placed() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path index() const { return root / "index"; }
};

/// Errors (user) for a directory that is not a run's, and for a run without checkpoints.
[[nodiscard]] Error not_a_run(const std::filesystem::path& directory);
[[nodiscard]] Error none_yet(const StoredRun& run);

/// Errors (user): not a run's directory.
[[nodiscard]] Result<StoredRun> open_run(const std::string& directory);
/// Stored configuration `config` of `run`, with paths that are right from here (find_paths()), and
/// the run's own copy of its model where the model is gone.
[[nodiscard]] configs::RunConfig as_found(configs::RunConfig config,
                                          const std::filesystem::path& run);
/// Configuration of `run`, as_found(). Errors (user): not a run directory.
[[nodiscard]] Result<configs::RunConfig> load_run_config(const std::filesystem::path& run);
/// The same, for a command that reads the run's data; warns where the working directory has other
/// files of the same names. Errors (user): also, a relative directory of data does not exist; names
/// the directory where the run was started.
[[nodiscard]] Result<configs::RunConfig> load_run_with_data(const std::filesystem::path& run);
/// Error (user): `average` is requested, but the run keeps none (train.ema).
[[nodiscard]] Status check_average(const configs::RunConfig& config, bool average);

/// Prefix of the names of the running averages in a checkpoint; empty: `average` is not requested.
[[nodiscard]] std::string average_prefix(bool average);
/// Checkpoints in place, newest first. Errors (user): none exists.
[[nodiscard]] Result<std::vector<checkpoint::Candidate>> placed_in(const StoredRun& run);
/// Checkpoint in place of a step, or of kBestStep. Errors (user): it does not exist; names the
/// nearest. No checkpoint has a validation loss, so none is the best.
[[nodiscard]] Result<checkpoint::Candidate> placed_at(const StoredRun& run, std::int64_t step);

/// Checkpoint of `step` or of kBestStep, checked to `depth`, or the newest intact one, found
/// without changing anything. Errors: (user) none yet, no such step (names the existing ones), none
/// is the best; (failure) it is damaged.
[[nodiscard]] Result<checkpoint::FoundCheckpoint> find_checkpoint(
    const StoredRun& run, std::optional<std::int64_t> step,
    checkpoint::Depth depth = checkpoint::Depth::bytes);

/// Checkpoints of the run; reports on stderr if the index could not be used.
[[nodiscard]] Result<checkpoint::IndexView> look(const StoredRun& run);

/// Total bytes of its files.
[[nodiscard]] std::uint64_t size_of(const checkpoint::Manifest& manifest);

/// "2026-11-21 11:28:46", local time.
[[nodiscard]] std::string time_text(std::int64_t unix_s);

}  // namespace train::cli
