#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/report/run_report.hpp"
#include "actors/head/report/stall_chain.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "base/result.hpp"
#include "engine/rank/plan/rank_layout.hpp"

namespace train::actors {

/// What stays the same for all generations of a start.
struct StatusBase {
  std::string run = {};  ///< Its directory's name.
  std::string host = {};
  std::int64_t pid = 0;             ///< Of the head launcher.
  std::uint64_t process_start = 0;  ///< Of that process, as the kernel counts it.
  std::int64_t started_unix_s = 0;  ///< This start.
  std::int64_t steps = 0;           ///< Of the whole run.
  engine::MemoryPlan memory = {};   ///< Of rank 0.
};

/// A run as its head knows it at one moment. Times are of the head's steady clock.
struct RunStatus {
  StatusBase base;
  std::string phase = "starting";  ///< "starting", "running" or "over".
  std::uint32_t generation = 0;
  std::int64_t ranks = 0;
  std::int64_t now_ns = 0;
  std::int64_t now_unix_s = 0;
  RunProgress progress = {};
  std::vector<ObservedWait> waits = {};      ///< Of the launcher's actors.
  std::vector<ObservedQueue> credits = {};   ///< That they grant.
  std::vector<ObservedStream> streams = {};  ///< Theirs.
  std::vector<HeardRank> heard = {};
  std::optional<Stall> stall = {};
  std::optional<RunFinished> outcome = {};
};

/// One JSON object, ending in a line feed: what `<run>/status.json` holds (actors/README.md).
[[nodiscard]] std::string to_json(const RunStatus& status);

/// `<run>/status.json`: what the head says of a run while it is on, and its end. Replaced as a
/// whole; not made durable, as nobody needs it after a power cut.
///
/// Threading: safe from any thread; write() blocks on the file system. Ownership: the launcher's,
/// for all generations of a start.
class StatusFile {
 public:
  StatusFile(std::filesystem::path run, StatusBase base);

  /// What a status without progress of its own says: what came of a generation of ranks.
  void set_progress(const RunProgress& progress);
  /// Replaces the file; after a status with an outcome nothing is written any more. Fills in
  /// base, steps and the present time. Errors: the file system's, as one line.
  Status write(RunStatus status);

 private:
  std::filesystem::path path_;
  StatusBase base_;
  std::mutex mutex_;
  std::optional<RunProgress> progress_;
  bool over_ = false;
};

[[nodiscard]] std::filesystem::path status_path(const std::filesystem::path& run);

/// Base of the status of a run that this process is the head of.
[[nodiscard]] StatusBase status_base(std::string run, std::int64_t steps,
                                     const engine::MemoryPlan& memory = {});

/// Since when process `pid` of this machine runs, in the kernel's ticks; none: there is no such
/// process.
[[nodiscard]] std::optional<std::uint64_t> process_start(std::int64_t pid);

}  // namespace train::actors
