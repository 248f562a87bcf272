#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::checkpoint {

/// Directory named like a checkpoint; it may not be intact.
struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// "step-00000200".
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// Step in a name from checkpoint_name(); nullopt for any other name.
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(std::string_view name);

/// Directories step-* in `checkpoints`, newest first. Empty for a missing directory.
Result<std::vector<Candidate>> list_checkpoints(const std::filesystem::path& checkpoints);

/// True if `path` certainly does not exist; false if that is unknown. Follows no link.
[[nodiscard]] bool is_gone(const std::filesystem::path& path);

/// Names of the damaged-* directories in `checkpoints`, sorted.
Result<std::vector<std::string>> list_damaged(const std::filesystem::path& checkpoints);

/// Renames a checkpoint to damaged-<its name>[.n], durably; returns the new path.
Result<std::filesystem::path> set_aside(const std::filesystem::path& checkpoint);

/// Removes the remains of killed processes: .incoming-* and .retired-* directories. REQUIRES: no
/// other process writes here (the run's lock is held).
Status remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace train::checkpoint
