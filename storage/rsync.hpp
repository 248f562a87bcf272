#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.hpp"

namespace train::storage {

struct RsyncOptions {
  std::string program = "rsync";         ///< Overridden by ACTORTRAIN_RSYNC in the environment.
  std::chrono::milliseconds timeout{0};  ///< For the whole copy; 0: no limit.
  std::stop_token stop = {};             ///< Ends the copy at once, as a failure.
  /// Replaces the program: for simulations, which have one process and simulated time.
  std::function<Status(const std::filesystem::path& from, const std::filesystem::path& to)> copy =
      {};
};

/// Copies the file `from` into the existing directory `to_directory` under its own name with the
/// program rsync, so that the bytes pass through neither this process nor its page tables.
///
/// The file appears under its name only when complete; an interrupted copy may leave a hidden file
/// of rsync in `to_directory`, which the directory's owner removes. Not synced, and rsync's
/// checksums are off: the caller syncs (fsync_file) and compares the digest with the original. The
/// program runs at nice 19 in its own process group, and ends with this process however it ends;
/// when the call returns, it has ended. Blocks only the calling thread (this process's memory is
/// not forked). Errors: the program is missing (user, names the package); it failed, was killed,
/// timed out or was stopped (failure, with its exit code and last output).
Status rsync_file(const std::filesystem::path& from, const std::filesystem::path& to_directory,
                  const RsyncOptions& options = {});

}  // namespace train::storage
