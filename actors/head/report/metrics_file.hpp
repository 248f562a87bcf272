#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/append_file.hpp"

namespace train::actors {

/// End of metrics.jsonl, seen from one step.
struct MetricsEnd {
  /// The file up to the last whole line of a step that is not after the one asked for.
  std::uint64_t kept_bytes = 0;
  std::int64_t newest_step = 0;  ///< Of that line; 0: there is none.
  bool evaluated = false;        ///< A line of the step asked for has its evaluation,
  bool answered = false;         ///< or its answers to eval.choices.
  bool unreadable = false;       ///< Among the lines that were read one was of no step.
};

/// Looks in the metrics of the run in `directory` for `step`, of which lines of later ones do not
/// count. Reads from the end: the lines after the last one that counts and some tens of KiB, so
/// that what it costs does not grow with the run's past. A missing file has no lines. Blocks.
/// Errors: the file cannot be read.
[[nodiscard]] Result<MetricsEnd> find_metrics_end(const std::filesystem::path& directory,
                                                  std::int64_t step);

/// metrics.jsonl of a run, through all of its generations in this process: lines of JSON, in the
/// order of their steps.
/// Threading: one owner at a time. Blocks on the disk. What cannot be written waits (AppendFile).
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& directory);

  /// Drops the lines of steps after `first_step`, which will be computed again, a torn last line,
  /// and all of a run that begins again (0), which measures its first loss again. Errors: the file
  /// may not be written (user); that it cannot be read now is logged, and lines may come twice.
  Status resume_from(std::int64_t first_step);
  /// find_metrics_end() with the lines that wait.
  [[nodiscard]] MetricsEnd end_at(std::int64_t step) const;
  /// A line, without its end, of a step that is not before those of the lines before.
  void append(std::string_view line);

 private:
  std::filesystem::path directory_;
  storage::AppendFile file_;
};

}  // namespace train::actors
