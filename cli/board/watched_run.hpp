#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/board/board_text.hpp"
#include "cli/board/run_metrics.hpp"
#include "cli/report/status_view.hpp"
#include "storage/files/line_tail.hpp"
#include "storage/files/within.hpp"

namespace train::cli {

struct FileState {
  std::uint64_t inode = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

/// A running or finished run, read from its directory: status.json, metrics.jsonl and events.jsonl,
/// as far as written. Read-only.
///
/// The files may belong to another user: size, depth and kind of every file are limited, no link
/// leads out of the folder, and a look reads at most one piece of each file. A missing or damaged
/// file is no error: the texts report it. Threading: not thread-safe; look() and read_metrics()
/// block on the disk.
class WatchedRun {
 public:
  explicit WatchedRun(storage::Within run);

  /// Event of the run: a line of events.jsonl.
  struct Event {
    std::uint64_t number = 0;  ///< From 1, in file order.
    std::string json;
  };
  static constexpr std::size_t kMostEvents = 2000;  ///< Older ones are dropped,
  /// and all beyond this size.
  static constexpr std::size_t kMostEventBytes = std::size_t{512} << 10U;

  /// Checks for a new status and new events; skipped for a while after a slow look.
  void look(const Surroundings& here);
  /// Reads more metrics; returns true if there is more to read at once. They are kept from the
  /// first call until forget_metrics().
  bool read_metrics();
  void forget_metrics() { metrics_.reset(); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const storage::Within& directory() const { return directory_; }
  /// Status with `condition`, `age_s` and, for processes of this machine, `memory`; or {"error":
  /// one line}. `checkpoints`: steps of those in place; after read_metrics() also their
  /// `validation_losses` (null: not evaluated at that step) and the `best_checkpoint`; `problems`:
  /// unreadable files, one line each. Version: grows with each change except of `age_s`.
  [[nodiscard]] const std::string& status_json() const { return status_; }
  [[nodiscard]] std::uint64_t status_version() const { return status_version_; }
  [[nodiscard]] const std::deque<Event>& events() const { return events_; }
  /// Number of the first event of the file as it is; another one: those before are no longer valid.
  [[nodiscard]] std::uint64_t first_event() const { return first_event_; }
  /// Null: read_metrics() was not called.
  [[nodiscard]] const RunMetrics* metrics() const { return metrics_.get(); }
  /// Summary for lists of runs: "name", "condition", "step", "steps", "tokens_per_second", "loss",
  /// ...
  [[nodiscard]] std::string summary_json() const;
  [[nodiscard]] RunGauges gauges() const;

 private:
  bool status_is_known(const Surroundings& here);
  void look_at_status(const Surroundings& here);
  void add_losses(nlohmann::ordered_json& beside) const;
  void show_status(const Surroundings& here);
  void show_error(const std::string& message);
  void say(std::string status);
  void look_at_events();
  void take_event(std::string_view line);
  void look_at_newest_numbers();
  void take_numbers(std::string_view line);
  [[nodiscard]] std::vector<std::string> problems() const;

  storage::Within directory_;
  std::string name_;
  std::string status_ = "{}";
  std::uint64_t status_version_ = 0;
  std::optional<StatusView> seen_;  ///< Status that it was made from; nullopt: unreadable.
  std::string condition_ = "unknown";
  std::string error_;                      ///< Reason why there is no status; empty: there is one.
  std::vector<std::int64_t> checkpoints_;  ///< Steps, in order.
  nlohmann::ordered_json beside_;          ///< Members of `status_` that are not of the file.
  StatusWatch watch_;
  FileState status_file_, checkpoints_file_;
  StatusWatch::Time status_read_ = {}, rest_until_ = {};
  RunGauges gauges_ = {};
  storage::LineTail event_lines_;
  std::deque<Event> events_;
  std::size_t event_bytes_ = 0;
  std::uint64_t next_event_ = 1, first_event_ = 1;
  std::uint64_t damaged_events_ = 0;
  std::unique_ptr<RunMetrics> metrics_;
  storage::LineTail newest_lines_;  ///< Reads only the end of metrics.jsonl.
};

}  // namespace train::cli
