#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "configs/validate_config.hpp"

// What validate_config() and the readers of files are put together from; for files of this folder.
namespace train::configs {

/// A run file, a profile or a table of rules is a page of text; anything larger is some other file.
inline constexpr std::size_t kLargestFile = 1 << 20;

/// A mistake of the user's at `key`: where it was set, its name, and `rule`, which begins with what
/// is wrong and ends with the fix.
[[nodiscard]] Error broken(const KeyPositions& places, std::string_view key,
                           const std::string& rule);

/// Whether what [memory] asks for can be had of this device, precision and strategy.
[[nodiscard]] Status check_memory(const RunConfig& config, const KeyPositions& places);

}  // namespace train::configs
