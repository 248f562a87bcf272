#pragma once

#include <filesystem>

namespace train {

/// `path` without a slash at its end, so that its last part has a name.
[[nodiscard]] inline std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace train
