#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.hpp"

namespace train::storage {

struct RsyncOptions {
  std::string program = "rsync";         ///< ACTORTRAIN_RSYNC in the environment goes before it.
  std::chrono::milliseconds timeout{0};  ///< Of the whole copy; 0: none.
  std::stop_token stop = {};             ///< Ends the copy at once, as a failure.
  /// In the place of any program: for simulations, which have one process and no time to pass.
  std::function<Status(const std::filesystem::path& from, const std::filesystem::path& to)> copy =
      {};
};

/// Copies the file `from` into the existing directory `to_directory` under its own name, by the
/// program rsync, so that the bytes pass through neither this process nor its page tables.
///
/// The file has its name only once all of it is there; a copy that is cut short may leave a hidden
/// name of rsync's in `to_directory`, for whoever made the directory to remove. Not synced: the
/// caller does that (fsync_file), and compares it with the digest of what it had written: rsync's
/// own checksums are off. The program runs at nice 19 in a process group of its own, and
/// ends with this one however this one ends; when the call returns, all of it has ended.
/// Blocks the calling thread; every other one goes on (no fork of this process's memory).
/// Errors: the program is not there (user, names the package); it failed, was killed, timed out or
/// was stopped (failure, with its exit code and what it said last).
Status rsync_file(const std::filesystem::path& from, const std::filesystem::path& to_directory,
                  const RsyncOptions& options = {});

}  // namespace train::storage
