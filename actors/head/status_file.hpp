#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/head/run_status.hpp"
#include "base/result.hpp"

namespace train::actors {

/// `<run>/status.json`: what the head says of a run while it is on, and its end. Replaced as a
/// whole; not made durable, as nobody needs it after a power cut.
///
/// Threading: safe from any thread; write() blocks on the file system. Ownership: the launcher's,
/// for all generations of a start.
class StatusFile {
 public:
  StatusFile(std::filesystem::path run, StatusBase base);

  /// What a status without progress of its own says: what came of a generation of ranks.
  void note(const RunProgress& progress);
  /// Replaces the file; after a status with an outcome nothing is written any more. Fills in
  /// base, steps and the present time. Errors: the file system's, as one line.
  Status write(RunStatus status);

 private:
  std::filesystem::path path_;
  StatusBase base_;
  std::mutex mutex_;
  std::optional<RunProgress> noted_;
  bool over_ = false;
};

[[nodiscard]] std::filesystem::path status_path(const std::filesystem::path& run);

/// Base of the status of a run that this process is the head of.
[[nodiscard]] StatusBase status_base(std::string run, std::int64_t steps);

/// Since when process `pid` of this machine runs, in the kernel's ticks; none: there is no such
/// process.
[[nodiscard]] std::optional<std::uint64_t> process_start(std::int64_t pid);

}  // namespace train::actors
