#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/board/board_text.hpp"
#include "cli/board/line_tail.hpp"
#include "cli/board/run_metrics.hpp"
#include "cli/report/status_view.hpp"

namespace train::cli {

/// A run seen from its directory, whether it is on or over: status.json, metrics.jsonl and
/// events.jsonl, as far as they have come. It only reads.
///
/// A file that is missing or damaged is no error: what is wrong with it is said in the texts.
/// Threading: not thread-safe; look() and read_metrics() block on the disk.
class WatchedRun {
 public:
  explicit WatchedRun(std::filesystem::path run);

  /// An event of the run, as the line of events.jsonl that says it.
  struct Event {
    std::uint64_t number = 0;  ///< From 1, in the order of the file.
    std::string json;
  };
  static constexpr std::size_t kMostEvents = 2000;  ///< Older ones are forgotten.

  /// Looks whether status and events have changed.
  void look(const Surroundings& here);
  /// Reads numbers on; whether there are more to read at once. They are kept from the first call
  /// on, until forget_metrics().
  bool read_metrics();
  void forget_metrics() { metrics_.reset(); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// Status with `condition`, `age_s` and, of processes of this machine, `memory`; or {"error":
  /// one line}. Version: grows with each change but of `age_s`.
  [[nodiscard]] const std::string& status_json() const { return status_; }
  [[nodiscard]] std::uint64_t status_version() const { return status_version_; }
  [[nodiscard]] const std::deque<Event>& events() const { return events_; }
  /// None: read_metrics() was not called.
  [[nodiscard]] const RunMetrics* metrics() const { return metrics_.get(); }
  /// For lists of runs: "name", "condition", "step", "steps", "tokens_per_second", "loss", ...
  [[nodiscard]] std::string summary_json() const;
  [[nodiscard]] RunGauges gauges() const;
  [[nodiscard]] bool over() const { return over_; }

 private:
  struct FileState {
    std::uint64_t inode = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  bool status_changed();
  void look_at_status(const Surroundings& here);
  void look_at_events();
  void look_at_newest_numbers();

  std::filesystem::path directory_;
  std::string name_;
  std::string status_ = "{}";
  std::uint64_t status_version_ = 0;
  std::optional<StatusView> seen_;  ///< What it was made of; none: it could not be read.
  std::string condition_ = "unknown";
  bool over_ = false;
  FileState status_file_;
  RunGauges gauges_ = {};
  LineTail event_lines_;
  std::deque<Event> events_;
  std::uint64_t next_event_ = 1;
  std::unique_ptr<RunMetrics> metrics_;
  std::uint64_t newest_size_ = 0;  ///< Of metrics.jsonl when its end was read,
  std::uint64_t newest_read_ = 0;  ///< and up to where: the end of a line.
};

}  // namespace train::cli
