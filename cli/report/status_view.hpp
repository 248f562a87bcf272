#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/within.hpp"

// A run's status, seen from outside.
namespace train::cli {

enum class RunCondition : std::uint8_t {
  running,
  over,  ///< It said so itself.
  died,  ///< Its launcher is gone, on this machine, without a word.
  lost,  ///< On another machine, and it has written nothing for long: died, or is cut off.
};

/// Who wrote a status, and when: what its condition is judged by.
struct StatusWriter {
  bool over = false;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;
  std::int64_t written_unix_s = 0;
};

struct StatusView {
  std::string file;  ///< Its content, of this format (status_schema.hpp), without its nulls.
  StatusWriter writer = {};
  RunCondition condition = RunCondition::running;
  std::int64_t age_s = 0;  ///< Of the file.
};

/// What is looked at to tell the living from the dead.
struct Surroundings {
  std::string host;  ///< This machine's name.
  std::int64_t now_unix_s = 0;
  std::chrono::steady_clock::time_point now = {};
};
[[nodiscard]] Surroundings surroundings_now();

/// What a reader has seen of a status itself, by its own clock: the clock of the machine that wrote
/// it may be any time off. Threading: not thread-safe.
class StatusWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The file has this content at `now`.
  void see(std::string_view file, Time now);

  enum class Verdict : std::uint8_t {
    unknown,  ///< Not looked at for long enough.
    alive,    ///< It has changed, and not long ago.
    silent,   ///< For longer than a writer that lives would be.
  };
  [[nodiscard]] Verdict verdict(Time now) const;
  /// Since it changed, or was seen first.
  [[nodiscard]] std::chrono::seconds unchanged(Time now) const;

 private:
  std::optional<std::size_t> content_;  ///< Its hash.
  Time since_ = {};
  bool changed_ = false;
};

/// Of the run whose status that is, now. Its own observation decides; only before there is one, the
/// clocks of both machines do.
[[nodiscard]] RunCondition condition_of(const StatusWriter& writer, const Surroundings& here,
                                        const StatusWatch& watch = {});

/// The status of the run in directory `run`, which `watch` sees, too. Blocks on the file system.
/// Errors: not a run, or no status yet (user); damaged (failure). Each is one line.
[[nodiscard]] Result<StatusView> read_status(const storage::Within& run, const Surroundings& here,
                                             StatusWatch& watch);
[[nodiscard]] inline Result<StatusView> read_status(const storage::Within& run,
                                                    const Surroundings& here) {
  StatusWatch first_sight;
  return read_status(run, here, first_sight);
}

/// The same for somebody who looks once: where the clocks would say that the run is lost, or cannot
/// be right, it looks on for up to `patience` whether the status changes. Blocks as long.
[[nodiscard]] Result<StatusView> watch_status(const storage::Within& run,
                                              std::chrono::milliseconds patience);

/// A table for people.
[[nodiscard]] std::string status_text(const StatusView& view);
[[nodiscard]] const char* condition_name(RunCondition condition);
/// The file, with `condition` and `age_s`, for programs.
[[nodiscard]] std::string status_json(const StatusView& view);

}  // namespace train::cli
