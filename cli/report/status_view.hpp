#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/within.hpp"

// Status of a run, seen from outside.
namespace train::cli {

enum class RunCondition : std::uint8_t {
  running,
  over,  ///< Reported by the run itself.
  died,  ///< The launcher, on this machine, has disappeared without a report.
  lost,  ///< On another machine, and silent for long: died, or cut off.
};

/// Writer and time of a status, which determine its condition.
struct StatusWriter {
  bool over = false;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;
  std::int64_t written_unix_s = 0;
};

struct StatusView {
  std::string file;  ///< Validated content (status_schema.hpp), without nulls.
  StatusWriter writer = {};
  RunCondition condition = RunCondition::running;
  std::int64_t age_s = 0;          ///< Age of the file.
  std::filesystem::path run = {};  ///< Directory of the run, as the reader has named it.
};

/// Data of this machine needed to tell running from dead.
struct Surroundings {
  std::string host;  ///< Name of this machine.
  std::int64_t now_unix_s = 0;
  std::chrono::steady_clock::time_point now = {};
};
[[nodiscard]] Surroundings surroundings_now();

/// Observations of a status over time, by the reader's clock: the writer's clock may be wrong.
/// Threading: not thread-safe.
class StatusWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Records the file's content at `now`.
  void see(std::string_view file, Time now);

  enum class Verdict : std::uint8_t {
    unknown,  ///< Not observed for long enough.
    alive,    ///< Changed recently.
    silent,   ///< Unchanged for longer than a live writer would take.
  };
  [[nodiscard]] Verdict verdict(Time now) const;
  /// Time since the last change, or the first observation.
  [[nodiscard]] std::chrono::seconds unchanged(Time now) const;

 private:
  std::optional<std::size_t> content_;  ///< Hash of the content.
  Time since_ = {};
  bool changed_ = false;
};

/// Current condition of the status's run. Decided by own observation; before there is any, by the
/// clocks of both machines.
[[nodiscard]] RunCondition condition_of(const StatusWriter& writer, const Surroundings& here,
                                        const StatusWatch& watch = {});

/// Reads the status of the run in directory `run`, and records it in `watch`. Blocks on the file
/// system. Errors: not a run, or no status yet (user); damaged (failure). Each is one line.
[[nodiscard]] Result<StatusView> read_status(const storage::Within& run, const Surroundings& here,
                                             StatusWatch& watch);
[[nodiscard]] inline Result<StatusView> read_status(const storage::Within& run,
                                                    const Surroundings& here) {
  StatusWatch first_sight;
  return read_status(run, here, first_sight);
}

/// Reads it once: if the clocks suggest that the run is lost, or cannot be right, observes for up
/// to `patience` whether the status changes. Blocks as long.
[[nodiscard]] Result<StatusView> watch_status(const storage::Within& run,
                                              std::chrono::milliseconds patience);

/// Status as a text table. `mean_rate`: tokens per second of all steps, shown of a run that does
/// not run; nullopt: unknown.
[[nodiscard]] std::string status_text(const StatusView& view,
                                      std::optional<double> mean_rate = std::nullopt);
[[nodiscard]] const char* condition_name(RunCondition condition);
/// Status file with `condition` and `age_s`, for programs.
[[nodiscard]] std::string status_json(const StatusView& view);

}  // namespace train::cli
