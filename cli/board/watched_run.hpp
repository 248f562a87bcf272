#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
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

/// A run seen from its directory, whether it is on or over: status.json, metrics.jsonl and
/// events.jsonl, as far as they have come. It only reads.
///
/// Another person may have written it: no file is too large, too deep or of the wrong kind, no link
/// leads out of the folder, and no look takes longer than a piece of each file. A file that is
/// missing or damaged is no error: what is wrong with it is said in the texts.
/// Threading: not thread-safe; look() and read_metrics() block on the disk.
class WatchedRun {
 public:
  explicit WatchedRun(storage::Within run);

  /// An event of the run, as the line of events.jsonl that says it.
  struct Event {
    std::uint64_t number = 0;  ///< From 1, in the order of the file.
    std::string json;
  };
  static constexpr std::size_t kMostEvents = 2000;  ///< Older ones are forgotten,
  static constexpr std::size_t kMostEventBytes = std::size_t{512} << 10U;  ///< and all beyond this.

  /// Looks whether status and events have changed; not at once again if that took long.
  void look(const Surroundings& here);
  /// Reads numbers on; whether there are more to read at once. They are kept from the first call
  /// on, until forget_metrics().
  bool read_metrics();
  void forget_metrics() { metrics_.reset(); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const storage::Within& directory() const { return directory_; }
  /// Status with `condition`, `age_s` and, of processes of this machine, `memory`; or {"error":
  /// one line}. `problems`: what cannot be read, a line each. Version: grows with each change but
  /// of `age_s`.
  [[nodiscard]] const std::string& status_json() const { return status_; }
  [[nodiscard]] std::uint64_t status_version() const { return status_version_; }
  [[nodiscard]] const std::deque<Event>& events() const { return events_; }
  /// None: read_metrics() was not called.
  [[nodiscard]] const RunMetrics* metrics() const { return metrics_.get(); }
  /// For lists of runs: "name", "condition", "step", "steps", "tokens_per_second", "loss", ...
  [[nodiscard]] std::string summary_json() const;
  [[nodiscard]] RunGauges gauges() const;

 private:
  struct FileState {
    std::uint64_t inode = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  bool status_is_known(const Surroundings& here);
  void look_at_status(const Surroundings& here);
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
  std::optional<StatusView> seen_;  ///< What it was made of; none: it could not be read.
  std::string condition_ = "unknown";
  std::string error_;              ///< Why there is no status; empty: there is one.
  std::string problems_ = "null";  ///< As `status_` says them.
  StatusWatch watch_;
  FileState status_file_;
  StatusWatch::Time status_read_ = {}, rest_until_ = {};
  RunGauges gauges_ = {};
  storage::LineTail event_lines_;
  std::deque<Event> events_;
  std::size_t event_bytes_ = 0;
  std::uint64_t next_event_ = 1;
  std::uint64_t damaged_events_ = 0;
  std::unique_ptr<RunMetrics> metrics_;
  storage::LineTail newest_lines_;  ///< Of metrics.jsonl, its end alone.
};

}  // namespace train::cli
