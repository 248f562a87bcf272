#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "cli/board/metric_history.hpp"
#include "storage/files/line_tail.hpp"

namespace train::cli {

struct StepRange {
  std::int64_t from = 0;
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
};

/// The numbers of `<run>/metrics.jsonl`, as far as they are written.
///
/// Quantities have the names of the file; those of an object ("unit_grad_norm") are
/// "unit_grad_norm/<its key>"; those of an evaluation begin with "val_". Lines that are damaged are
/// counted, those too that are longer than 1 MiB or hold more than 4,096 numbers. Memory is bounded
/// (MetricHistory). Threading: not thread-safe; read_on() blocks on the disk for the time of one
/// piece.
class RunMetrics {
 public:
  explicit RunMetrics(const storage::Within& run, StepRange steps = {});
  ~RunMetrics();
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  /// Reads a piece on; whether there is more to read at once.
  bool read_on();

  [[nodiscard]] const MetricHistory& history() const { return history_; }
  [[nodiscard]] std::uint64_t damaged_lines() const;
  /// Why there are none though there is a file, as one line; empty: nothing is wrong.
  [[nodiscard]] const std::string& problem() const { return tail_.problem(); }
  /// Grows whenever something was read or dropped.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  /// Of the file, 0 to 1.
  [[nodiscard]] double share_read() const;

 private:
  class Parser;

  storage::LineTail tail_;
  StepRange steps_;
  std::unique_ptr<Parser> parser_;
  MetricHistory history_;
  std::uint64_t damaged_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace train::cli
