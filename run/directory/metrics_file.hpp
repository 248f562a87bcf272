#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/files/append_file.hpp"

namespace train::run {

/// End of metrics.jsonl as of one step.
struct MetricsEnd {
  /// Length of the file up to the last whole line of a step not after the requested one.
  std::uint64_t kept_bytes = 0;
  std::int64_t newest_step = 0;  ///< Step of that line; 0: no line.
  bool evaluated = false;        ///< A line has the requested step's evaluation.
  bool answered = false;         ///< A line has its answers to eval.choices.
  bool sampled = false;          ///< A line has the time of its samples.
  bool unreadable = false;       ///< A line among those read has no step.
};

/// Finds the end of the metrics of the run in `directory` as of `step`; lines of later steps do not
/// count. Reads backwards from the end: the lines after the last counted one and some tens of KiB,
/// so that the cost does not grow with the run's history. A missing file has no lines. Blocks.
/// Errors: the file cannot be read.
[[nodiscard]] Result<MetricsEnd> find_metrics_end(const std::filesystem::path& directory,
                                                  std::int64_t step);

/// Value of an evaluation; NaN: it was not finite.
struct EvaluatedValue {
  std::int64_t step = 0;
  double value = 0.0;
};

/// The file metrics.jsonl of a run, across all of its generations in this process: lines of JSON in
/// the order of their steps. Threading: one owner at a time. Blocks on the disk. Lines that cannot
/// be written are queued (AppendFile).
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& directory);

  /// Drops the lines of steps after `first_step`, which will be computed again, a torn last line,
  /// and all lines of a restarted run (0), which measures its first loss again. Errors: the file
  /// may not be written (user). An unreadable file is logged; its lines may then be duplicated.
  Status resume_from(std::int64_t first_step);
  /// Calls find_metrics_end() and includes the queued lines.
  [[nodiscard]] MetricsEnd end_at(std::int64_t step) const;
  /// Values of `key` ("val_loss") for steps up to `last_step`, in order, with those of queued
  /// lines. Reads all of the file. A missing file has none; unreadable lines are skipped. Blocks.
  /// Errors: the file cannot be read.
  [[nodiscard]] Result<std::vector<EvaluatedValue>> evaluated(const std::string& key,
                                                              std::int64_t last_step) const;
  /// Appends a line, without its line feed, of a step that is not before those of earlier lines.
  void append(std::string_view line);

 private:
  std::filesystem::path directory_;
  storage::AppendFile file_;
};

}  // namespace train::run
