#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "cli/board/expert_history.hpp"
#include "cli/board/metric_history.hpp"
#include "storage/files/line_tail.hpp"

namespace train::cli {

struct StepRange {
  std::int64_t from = 0;
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
};

/// Metrics of `<run>/metrics.jsonl`, as far as written.
///
/// Quantities have the file's names; members of an object ("unit_grad_norm") are named
/// "unit_grad_norm/<key>"; those of an evaluation begin with "val_". The loads of experts
/// ("expert_load") are apart. Damaged lines are counted, as are lines longer than 1 MiB or with
/// more than 4,096 numbers beside loads. Memory is bounded (MetricHistory, ExpertHistory).
/// Threading: not thread-safe; read_on() blocks on the disk for one piece.
class RunMetrics {
 public:
  explicit RunMetrics(const storage::Within& run, StepRange steps = {});
  ~RunMetrics();
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  /// Reads the next piece; returns true if there is more to read at once.
  bool read_on();

  [[nodiscard]] const MetricHistory& history() const { return history_; }
  [[nodiscard]] const ExpertHistory& experts() const { return experts_; }
  /// Validation losses by step: the newest 65,536, not those of a range.
  [[nodiscard]] const std::map<std::int64_t, double>& validation_losses() const { return losses_; }
  [[nodiscard]] std::uint64_t damaged_lines() const;
  /// One-line reason why an existing file gives no metrics; empty: no problem.
  [[nodiscard]] const std::string& problem() const { return tail_.problem(); }
  /// Grows whenever data was read or dropped.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  /// Time at which the file was begun to be read, in microseconds: another one, and what was read
  /// before may be steps that a start has taken back.
  [[nodiscard]] std::int64_t reading() const { return reading_; }

 private:
  class Parser;

  storage::LineTail tail_;
  StepRange steps_;
  std::unique_ptr<Parser> parser_;
  MetricHistory history_;
  ExpertHistory experts_;
  std::map<std::int64_t, double> losses_;
  std::uint64_t damaged_ = 0;
  std::uint64_t version_ = 0;
  std::int64_t reading_;
};

}  // namespace train::cli
