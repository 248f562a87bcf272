#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Takes the lock of an open file, or directory, if nobody has it: flock without waiting. True too
/// where the file system has no locks to give (Lustre without its option, NFS without its server's
/// daemon), as on one that gives them to everybody. False: errno says why, EWOULDBLOCK that
/// somebody has it.
[[nodiscard]] bool lock_if_free(int descriptor);

/// Keeps a second process out of a directory for as long as it lives (ST-2); that of a run has a
/// RunLock.
///
/// An exclusive flock: the kernel drops it when the process ends, however it ends, so a stale lock
/// cannot exist. Where the file system has no locks to give, nobody is kept out.
class FileLock {
 public:
  /// On `<directory>/<name>`, which holds the owner's process id and stays. Does not wait. Errors:
  /// held elsewhere (user; names the process), not writable (user).
  static Result<FileLock> acquire(const std::filesystem::path& directory, std::string_view name);
  /// On the directory itself: no file is made, and acquire() knows nothing of it. Blocks until
  /// nobody else has it so. Errors: no directory that can be opened.
  static Result<FileLock> wait_for(const std::filesystem::path& directory);

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  Descriptor descriptor_;
};

}  // namespace train::storage
