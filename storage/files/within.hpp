#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Place in a folder with several writers. The folder is the given one, whether a link or not;
/// everything below must be inside it.
struct Within {
  std::filesystem::path folder;
  std::filesystem::path below = {};  ///< Relative; empty: the folder itself.

  [[nodiscard]] std::filesystem::path path() const {
    return below.empty() ? folder : folder / below;
  }
  [[nodiscard]] Within operator/(const std::filesystem::path& name) const {
    return {.folder = folder, .below = below.empty() ? name : below / name};
  }
};

/// Opens the regular file at `place` for reading. Links in `place.below` are followed while they
/// stay in the folder, even if changed concurrently. Never waits for a named pipe's writer. Errors:
/// missing, not a regular file, no permission, a link out of the folder (all user), other
/// (failure). Blocks on the disk.
[[nodiscard]] Result<Descriptor> open_within(const Within& place);

/// Reads the whole file up to its current end. More than `limit_bytes` is a failure, without using
/// more memory. Other errors: those of open_within(). Blocks on the disk.
[[nodiscard]] Result<std::string> read_within(const Within& place, std::uint64_t limit_bytes);

}  // namespace train::storage
