#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace train::storage {

/// digest_bytes() of a file's bytes as its disk has them: read past the page cache, which would
/// show what was written and not what was kept. Where the file system does not allow that, what
/// lies in memory is dropped first as far as the system drops it. REQUIRES: the file was synced.
/// Blocks. Errors: as os_error(); a symbolic link is one.
[[nodiscard]] Result<std::string> digest_on_disk(const std::filesystem::path& path);

}  // namespace train::storage
