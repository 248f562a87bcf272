#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// A place in a folder that several people write. The folder is the one that was asked for, whether
/// by a link or not; what lies below it has to be in it.
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

/// The regular file at `place`, open for reading. A link in `place.below` is followed as long as it
/// leads to somewhere in the folder, whoever changes it meanwhile. Never waits for the writer of a
/// named pipe. Errors: missing, no regular file, no permission, a link out of the folder (all
/// user), other (failure). Blocks on the disk.
[[nodiscard]] Result<Descriptor> open_within(const Within& place);

/// All of it, as far as it goes when it is read. More than `limit_bytes`: a failure, without more
/// memory. Other errors: those of open_within(). Blocks on the disk.
[[nodiscard]] Result<std::string> read_within(const Within& place, std::uint64_t limit_bytes);

}  // namespace train::storage
