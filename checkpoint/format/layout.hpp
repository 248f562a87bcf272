#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::checkpoint {

/// A directory that has the name of a checkpoint; whether it is whole is another question.
struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// "step-00000200".
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// The step of a name that checkpoint_name() gives; empty for any other name.
[[nodiscard]] std::optional<std::int64_t> checkpoint_step(std::string_view name);

/// The step-* directories in `checkpoints`, newest first. A missing directory holds none.
Result<std::vector<Candidate>> list_checkpoints(const std::filesystem::path& checkpoints);

/// Whether nothing has this name any more, for certain: not if nobody can tell. Follows no link.
[[nodiscard]] bool is_gone(const std::filesystem::path& path);

/// Names of the damaged-* directories in `checkpoints`, sorted.
Result<std::vector<std::string>> list_damaged(const std::filesystem::path& checkpoints);

/// Renames a checkpoint to damaged-<its name>[.n], durably; returns the new path.
Result<std::filesystem::path> set_aside(const std::filesystem::path& checkpoint);

/// Removes what killed processes left: .incoming-* and .retired-* directories.
/// REQUIRES: no other process writes here (the run's lock is held).
Status remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace train::checkpoint
