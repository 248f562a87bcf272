#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"

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
  std::string file;  ///< Its content: valid JSON of this format.
  StatusWriter writer = {};
  RunCondition condition = RunCondition::running;
  std::int64_t age_s = 0;  ///< Of the file.
};

/// What is looked at to tell the living from the dead.
struct Surroundings {
  std::string host;  ///< This machine's name.
  std::int64_t now_unix_s = 0;
};
[[nodiscard]] Surroundings surroundings_now();

/// Of the run whose status that is, now.
[[nodiscard]] RunCondition condition_of(const StatusWriter& writer, const Surroundings& here);

/// The status of the run in directory `run`. Blocks on the file system.
/// Errors: not a run, or no status yet (user); damaged (failure). Each is one line.
[[nodiscard]] Result<StatusView> read_status(const std::filesystem::path& run,
                                             const Surroundings& here);

/// A table for people.
[[nodiscard]] std::string status_text(const StatusView& view);
[[nodiscard]] const char* condition_name(RunCondition condition);
/// The file, with `condition` and `age_s`, for programs.
[[nodiscard]] std::string status_json(const StatusView& view);

}  // namespace train::cli
