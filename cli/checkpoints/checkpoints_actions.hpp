#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "checkpoint/index/index_view.hpp"
#include "cli/options.hpp"

// The parts of checkpoints_command(). Each action prints what it found on stdout and returns the
// exit code; an error is one line for stderr. All block.
namespace train::cli::checkpoints {

/// A run's directory, as far as its checkpoints go.
struct Run {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path placed() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path index() const { return root / "index"; }
};

/// Errors (user): not a run's directory.
[[nodiscard]] Result<Run> open_run(const std::string& directory);
/// The directory of a step. Errors (user): there is none, names the nearest.
[[nodiscard]] Result<std::filesystem::path> directory_of(const Run& run, std::int64_t step);
/// The error (user) of a run without checkpoints.
[[nodiscard]] Error none_yet(const Run& run);
/// The run's checkpoints; says on stderr if the index could not be used.
[[nodiscard]] Result<checkpoint::IndexView> look(const Run& run);
void print(std::string_view text);

/// "2026-11-21 11:28:46", local time.
[[nodiscard]] std::string time_text(std::int64_t unix_s);
/// What `list` prints: a table for people, newest last, or one JSON object. Pure.
[[nodiscard]] std::string list_text(const checkpoint::IndexView& view,
                                    const CheckpointsOptions& options);

[[nodiscard]] Result<int> list(const CheckpointsOptions& options);
[[nodiscard]] Result<int> show(const CheckpointsOptions& options);
[[nodiscard]] Result<int> verify(const CheckpointsOptions& options);
[[nodiscard]] Result<int> prune(const CheckpointsOptions& options);
[[nodiscard]] Result<int> reindex(const CheckpointsOptions& options);
[[nodiscard]] Result<int> diff(const CheckpointsOptions& options);

}  // namespace train::cli::checkpoints
