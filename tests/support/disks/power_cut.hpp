#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Effect of a power cut on written bytes that were not synced.
enum class UnsyncedBytes {
  kept,
  lost,        ///< The file returns to its last fsync.
  torn_512,    ///< Half of them, rounded to a multiple of 512 bytes.
  torn_4096,   ///< Half of them, rounded to a multiple of 4096 bytes.
  holed_512,   ///< The file keeps its length; every other 512 bytes are zeros.
  holed_4096,  ///< The file keeps its length; every other 4096 bytes are zeros.
  garbage,     ///< The file keeps its length; unsynced bytes are garbage.
};

/// Set of unsynced directory changes that a power cut leaves. Each may survive or not
/// independently: only fsync orders them.
struct UnsyncedEntries {
  enum class Mode { all, none, only, all_but };
  Mode mode = Mode::all;
  std::size_t which = 0;  ///< For only, all_but: index among the pending changes.
};

/// Content left of a file that had `synced` at its last fsync and `now` before the cut.
inline std::string content_left(const std::string& now, const std::string& synced,
                                UnsyncedBytes bytes) {
  if (bytes == UnsyncedBytes::kept || now == synced) {
    return now;
  }
  // Files are appended to; an overwritten file is entirely unsafe.
  const std::size_t safe = now.starts_with(synced) ? synced.size() : 0;
  const std::size_t unit =
      bytes == UnsyncedBytes::torn_512 || bytes == UnsyncedBytes::holed_512 ? 512 : 4096;
  std::string left = now;
  switch (bytes) {
    case UnsyncedBytes::torn_512:
    case UnsyncedBytes::torn_4096:
      left.resize(std::max(safe, (safe + (now.size() - safe) / 2) / unit * unit));
      return left;
    case UnsyncedBytes::holed_512:
    case UnsyncedBytes::holed_4096:
      for (std::size_t i = safe; i < left.size(); ++i) {
        left[i] = i / unit % 2 == 0 ? '\0' : left[i];
      }
      return left;
    case UnsyncedBytes::garbage:
      for (std::size_t i = safe; i < left.size(); ++i) {
        left[i] = static_cast<char>(i * 2654435761U >> 11U);
      }
      return left;
    default:
      return synced;
  }
}

/// Writes `tree` (of CrashingDisk) into an existing directory.
inline void materialise(const std::map<std::string, std::string>& tree,
                        const std::filesystem::path& directory) {
  for (const auto& [path, content] : tree) {
    if (path.ends_with('/')) {
      std::filesystem::create_directories(directory / path);
    } else {
      write_bytes(directory / path, content);
    }
  }
}

}  // namespace train::test
