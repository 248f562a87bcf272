#pragma once

#include <filesystem>
#include <string_view>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Tries to lock an open file or directory (flock without waiting). Returns true also if the file
/// system does not support locks (Lustre without its option, NFS without its server's daemon).
/// Returns false with errno; EWOULDBLOCK: it is locked elsewhere.
[[nodiscard]] bool lock_if_free(int descriptor);

/// Keeps other processes out of a directory while it lives (ST-2); a run's directory has a RunLock.
///
/// An exclusive flock: the kernel releases it when the process ends in any way, so a stale lock
/// cannot exist. On a file system without locks it excludes nobody.
class FileLock {
 public:
  /// Locks `<directory>/<name>`, which holds the owner's pid and is not removed. Does not wait.
  /// Errors: held elsewhere (user; names the process), not writable (user).
  static Result<FileLock> acquire(const std::filesystem::path& directory, std::string_view name);
  /// Locks the directory itself: no file is created, and acquire() does not notice it. Blocks until
  /// the lock is free. Errors: the directory cannot be opened.
  static Result<FileLock> wait_for(const std::filesystem::path& directory);

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  Descriptor descriptor_;
};

}  // namespace train::storage
