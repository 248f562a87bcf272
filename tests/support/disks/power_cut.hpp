#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// What a power cut makes of bytes that were written and not synced.
enum class UnsyncedBytes {
  kept,
  lost,        ///< The file is as it was at its last fsync.
  torn_512,    ///< Half of them, to a multiple of 512 bytes.
  torn_4096,   ///< The same of 4096.
  holed_512,   ///< The file has its length; every other 512 bytes are zeros.
  holed_4096,  ///< The same of 4096.
  garbage,     ///< The file has its length; what was not synced is something else.
};

/// Which changes of directories, not synced yet, a power cut leaves. Each may come or not on its
/// own: nothing but fsync orders them.
struct UnsyncedEntries {
  enum class Mode { all, none, only, all_but };
  Mode mode = Mode::all;
  std::size_t which = 0;  ///< only, all_but: the change's number among the pending ones.
};

/// What is left of a file that had `synced` at its last fsync and `now` before the cut.
inline std::string content_left(const std::string& now, const std::string& synced,
                                UnsyncedBytes bytes) {
  if (bytes == UnsyncedBytes::kept || now == synced) {
    return now;
  }
  // Files are appended to; one that was overwritten is all unsafe.
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

/// Makes `tree` (of CrashingDisk) real in an existing directory.
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
