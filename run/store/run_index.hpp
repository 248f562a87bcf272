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
#include "run/events/rank_reports.hpp"

namespace train::run {

/// Index of a run on a disk that may refuse writes for a while.
///
/// A store that has refused a write is closed, and reopened before its next use: RocksDB takes no
/// more writes, and aborts the process at a write once there is room again. Steps, remarks and what
/// is taken back are queued here meanwhile, across generations (CK-7). The first refusal logs one
/// warning, and the write of the whole queue one info line.
///
/// Threading: one owner at a time. All calls block except those that say otherwise.
class RunIndex {
 public:
  using Open = std::function<Result<checkpoint::OpenedIndex>(checkpoint::IndexReading)>;
  using Change = std::function<Status(checkpoint::CheckpointIndex&)>;

  explicit RunIndex(Open open) : open_(std::move(open)) {}

  /// Logs the findings and repairs of opening. Errors: those of open_index().
  Status open();
  /// Runs `work`, which is all or nothing, after a queued take_back(). After an error the store is
  /// closed.
  Status change(const Change& work);
  /// Calls CheckpointIndex::look_again(), or open() if the store is closed.
  Status look_again();
  /// Queues steps (at most 100,000, the oldest are dropped), and writes the whole queue, remarks
  /// included. On an error some stay queued.
  Status journal(std::span<const checkpoint::StepRecord> steps);
  /// Takes back the steps after `step`, and drops queued ones and their remarks. On an error this
  /// stays queued, ahead of every later change, and the store is closed.
  Status take_back(std::int64_t step);
  /// Runs `remark` after the queued ones (at most 10,000, the oldest are dropped). On an error it
  /// stays queued. While the store is closed it is queued without an error: on a full disk, opening
  /// takes as long as at a start, and only journal() tries it. `of_step`: the step whose numbers
  /// the remark has, to be dropped with it; 0: of none.
  Status note(Change remark, std::int64_t of_step = 0);

  /// Index head for a manifest; opens the store if it is closed.
  Result<std::string> head();
  /// Checkpoints in place according to the index, as of its closing if it is closed. Does not
  /// block.
  [[nodiscard]] std::vector<checkpoint::IndexEntry> committed() const;
  /// Newest step that ever had a checkpoint. Does not block.
  [[nodiscard]] std::optional<std::int64_t> newest_known() const;
  /// Reads the journal's records of these steps; empty if it cannot be read now.
  [[nodiscard]] std::vector<checkpoint::StepRecord> steps(std::int64_t first,
                                                          std::int64_t last) const;

 private:
  struct Remark {
    Change write;
    std::int64_t of_step = 0;
  };
  void close(const Error& why);
  Status catch_up();
  Status write_waiting();
  void log_report() const;

  Open open_;
  std::optional<checkpoint::OpenedIndex> index_;                         ///< None: closed.
  std::vector<checkpoint::IndexEntry> committed_;                        ///< As of closing.
  checkpoint::IndexReading reading_ = checkpoint::IndexReading::needed;  ///< Used when opening.
  bool behind_ = false;                                                  ///< Lag was logged.
  std::deque<checkpoint::StepRecord> steps_;                             ///< Queued steps.
  std::deque<Remark> remarks_;                                           ///< Queued remarks.
  std::optional<std::int64_t> taken_back_;  ///< Queued take_back(): records of later steps go.
};

/// Journal record of the ranks' merged event; without the tokens.
[[nodiscard]] checkpoint::StepRecord step_record(const StepFinished& event);

}  // namespace train::run
