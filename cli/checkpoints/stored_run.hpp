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

// What a run has left in its directory, for the commands that look at it. All that reads blocks.
namespace train::cli {

/// A run's directory, as far as its checkpoints go.
struct StoredRun {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path placed() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path index() const { return root / "index"; }
};

/// The errors (user) of a directory that no run has made, and of a run without checkpoints.
[[nodiscard]] Error not_a_run(const std::filesystem::path& directory);
[[nodiscard]] Error none_yet(const StoredRun& run);

/// Errors (user): not a run's directory.
[[nodiscard]] Result<StoredRun> open_run(const std::string& directory);
/// The configuration that `run` was made with. Errors (user): not a run directory.
[[nodiscard]] Result<configs::RunConfig> load_run_config(const std::filesystem::path& run);
/// Error (user): `average` is asked for, and the run keeps none (train.ema).
[[nodiscard]] Status check_average(const configs::RunConfig& config, bool average);
/// The checkpoints in place, newest first. Errors (user): there is none.
[[nodiscard]] Result<std::vector<checkpoint::Candidate>> placed_in(const StoredRun& run);
/// The directory of a step. Errors (user): there is none, names the nearest.
[[nodiscard]] Result<std::filesystem::path> directory_of(const StoredRun& run, std::int64_t step);

/// The checkpoint of `step`, or the newest whole one, found without changing anything.
/// Errors: (user) none yet, no such step (names those there are); (failure) it is damaged.
[[nodiscard]] Result<checkpoint::FoundCheckpoint> find_checkpoint(
    const std::filesystem::path& checkpoints, std::optional<std::int64_t> step);

/// The run's checkpoints; says on stderr if the index could not be used.
[[nodiscard]] Result<checkpoint::IndexView> look(const StoredRun& run);

/// Of all its files, in bytes.
[[nodiscard]] std::uint64_t size_of(const checkpoint::Manifest& manifest);

/// "2026-11-21 11:28:46", local time.
[[nodiscard]] std::string time_text(std::int64_t unix_s);

}  // namespace train::cli
