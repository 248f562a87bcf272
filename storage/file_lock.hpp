#pragma once

#include <filesystem>
#include <string_view>

#include "engine/base/result.hpp"

namespace train::storage {

/// Keeps a second process out of a directory for as long as it lives (ST-2).
///
/// An exclusive flock on `<directory>/<name>`: the kernel drops it when the process ends, however
/// it ends, so a stale lock cannot exist. The file holds the owner's process id and stays.
class FileLock {
 public:
  /// Does not wait. Errors: held elsewhere (user; names the process), not writable (user).
  static Result<FileLock> acquire(const std::filesystem::path& directory,
                                  std::string_view name = "run.lock");

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace train::storage
