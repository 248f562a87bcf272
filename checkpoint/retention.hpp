#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/result.hpp"

namespace train::checkpoint {

/// Removes all but the newest `keep_last` checkpoints (0: keeps all; the newest always stays,
/// CK-6); returns the names that went, oldest first. Each is renamed to .retired-* before it is
/// deleted, so that no half of one ever carries a checkpoint's name. Blocks. Call after a newer
/// checkpoint has been published.
Result<std::vector<std::string>> retire_old(const std::filesystem::path& checkpoints,
                                            std::int64_t keep_last);

}  // namespace train::checkpoint
