#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.hpp"

// Files that only their owner may read: keys, and where the head listens.
namespace train::storage {

/// Creates `path` (and its parents), or takes it over, with mode 0700. Durable on return; blocks.
/// Errors: not writable, not the owner (user); disk full (failure).
[[nodiscard]] Status make_private_directory(const std::filesystem::path& path);

/// Replaces or creates `path` with `content`, whole or not at all and with mode 0600 from the first
/// byte on; durable on return. Blocks. Errors: as above.
[[nodiscard]] Status write_private_file(const std::filesystem::path& path,
                                        std::string_view content);

}  // namespace train::storage
