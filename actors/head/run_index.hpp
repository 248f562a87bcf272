#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/index/step_journal.hpp"

namespace train::actors {

/// The index of a run on a disk that may refuse writes for a while.
///
/// A store that has refused a write is closed, and opened anew before it is used again: RocksDB
/// takes no more writes, and ends the process at one when there is room again. Steps and remarks
/// wait here until then, through generations (CK-7). The first refusal is one warning, and that all
/// is written again is one line of the log.
///
/// Threading: one owner at a time. All calls block but for those that say so.
class RunIndex {
 public:
  using Open = std::function<Result<checkpoint::OpenedIndex>(checkpoint::IndexReading)>;
  using Change = std::function<Status(checkpoint::CheckpointIndex&)>;

  explicit RunIndex(Open open) : open_(std::move(open)) {}

  /// Logs what opening has found and done. Errors: those of open_index().
  Status open();
  /// Does `work`, which is all or nothing. After an error the store is closed.
  Status change(const Change& work);
  /// CheckpointIndex::look_again(), or open() of one that is closed.
  Status look_again();
  /// Adds steps to those that wait, the oldest of more than 100,000 go, and writes all that waits,
  /// remarks too. An error: some wait.
  Status journal(std::span<const checkpoint::StepRecord> steps);
  /// Does `remark` behind those that wait, of which the oldest of more than 10,000 go. An error: it
  /// waits. So it does, without one, where the store is closed: to open it takes as long on a full
  /// disk as at a start, and is journal()'s to try.
  Status note(Change remark);

  /// For a manifest; opens the store if it is closed.
  Result<std::string> head();
  /// The checkpoints in place, as the index has them, or had them when it was closed. Does not
  /// block.
  [[nodiscard]] std::vector<checkpoint::IndexEntry> committed() const;
  /// The newest step of which there ever was a checkpoint. Does not block.
  [[nodiscard]] std::optional<std::int64_t> newest_known() const;
  /// The journal's records of these steps; none if it cannot be read now.
  [[nodiscard]] std::vector<checkpoint::StepRecord> steps(std::int64_t first,
                                                          std::int64_t last) const;

 private:
  void close(const Error& why);
  Status catch_up();
  Status write_waiting();
  void log_report() const;

  Open open_;
  std::optional<checkpoint::OpenedIndex> index_;                         ///< None: it is closed.
  std::vector<checkpoint::IndexEntry> committed_;                        ///< When it was closed.
  checkpoint::IndexReading reading_ = checkpoint::IndexReading::needed;  ///< When it is opened.
  bool behind_ = false;                                                  ///< That was logged.
  std::deque<checkpoint::StepRecord> steps_;                             ///< That wait,
  std::deque<Change> remarks_;                                           ///< and these.
};

}  // namespace train::actors
