#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Keeps a second process out of a directory for as long as it lives (ST-2); that of a run has a
/// RunLock.
///
/// An exclusive flock: the kernel drops it when the process ends, however it ends, so a stale lock
/// cannot exist.
class FileLock {
 public:
  /// On `<directory>/<name>`, which holds the owner's process id and stays. Does not wait. Errors:
  /// held elsewhere (user; names the process), not writable (user).
  static Result<FileLock> acquire(const std::filesystem::path& directory,
                                  std::string_view name);
  /// On the directory itself: no file is made, and acquire() knows nothing of it. Blocks until
  /// nobody else has it so. Errors: no directory that can be opened; no locks there.
  static Result<FileLock> wait_for(const std::filesystem::path& directory);

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  Descriptor descriptor_;
};

}  // namespace train::storage
