#pragma once

#include <string_view>

namespace train::storage {

/// What the text of a failure says if a disk was full, or a quota used up: that of os_error(), of
/// RocksStore and of rsync_file().
inline constexpr std::string_view disk_full_words = "disk full";

/// Whether a failure is one of a full disk. Asks the text, as failures cross processes as text.
[[nodiscard]] inline bool says_disk_full(std::string_view failure) {
  return failure.find(disk_full_words) != std::string_view::npos;
}

}  // namespace train::storage
