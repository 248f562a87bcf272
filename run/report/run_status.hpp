#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "run/events/observed.hpp"
#include "run/events/outcome.hpp"
#include "run/report/run_report.hpp"
#include "run/report/stall_chain.hpp"

namespace train::run {

/// Status fields that are constant for all generations of a start.
struct StatusBase {
  std::string run = {};  ///< Name of the run's directory.
  std::string host = {};
  std::int64_t pid = 0;             ///< Process of the head launcher.
  std::uint64_t process_start = 0;  ///< Start of that process, in the kernel's ticks.
  std::int64_t started_unix_s = 0;  ///< Time of this start.
  std::int64_t steps = 0;           ///< Total steps of the run.
  engine::MemoryPlan memory = {};   ///< Memory plan of rank 0.
};

/// State of a run as known by its head at one moment. Times are of the head's steady clock.
struct RunStatus {
  StatusBase base;
  std::string phase = "starting";  ///< "starting", "running" or "over".
  std::uint32_t generation = 0;
  std::int64_t ranks = 0;
  std::int64_t now_ns = 0;
  std::int64_t now_unix_s = 0;
  RunProgress progress = {};
  std::vector<ObservedWait> waits = {};      ///< Waits of the launcher's actors.
  std::vector<ObservedQueue> credits = {};   ///< Credits granted by these actors.
  std::vector<ObservedStream> streams = {};  ///< Streams of the launcher.
  std::vector<HeardRank> heard = {};
  std::optional<Stall> stall = {};
  std::optional<RunFinished> outcome = {};
};

/// JSON object, ending in a line feed: the content of `<run>/status.json` (actors/README.md).
[[nodiscard]] std::string to_json(const RunStatus& status);

/// The file `<run>/status.json`: the status of a run while it is on, and its end. Replaced as a
/// whole; not durable, as a status is useless after a power cut.
///
/// Threading: safe from any thread; write() blocks on the file system. Ownership: the launcher's,
/// for all generations of a start.
class StatusFile {
 public:
  StatusFile(const std::filesystem::path& run, StatusBase base);

  /// Sets the final progress of a generation of ranks, used by statuses without progress of their
  /// own.
  void set_progress(const RunProgress& progress);
  /// Replaces the file, unless a status with an outcome has been written. Fills in base, steps and
  /// the present time. Errors: the file system's, as one line.
  Status write(RunStatus status);

 private:
  std::filesystem::path path_;
  StatusBase base_;
  std::mutex mutex_;
  std::optional<RunProgress> progress_;
  bool over_ = false;
};

[[nodiscard]] std::filesystem::path status_path(const std::filesystem::path& run);

/// Base of the status of a run whose head is this process.
[[nodiscard]] StatusBase status_base(std::string run, std::int64_t steps,
                                     const engine::MemoryPlan& memory = {});

/// Start time of process `pid` of this machine, in the kernel's ticks; nullopt: there is no such
/// process.
[[nodiscard]] std::optional<std::uint64_t> process_start(std::int64_t pid);

}  // namespace train::run
