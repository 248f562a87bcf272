#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/index/step_journal.hpp"

namespace train::cli {

/// What metrics.jsonl says, against what the journal does.
struct MetricsAudit {
  std::vector<std::string> problems;  ///< A line for each.
  std::int64_t steps = 0;             ///< Lines of steps that were compared.
  std::int64_t newer = 0;             ///< Lines of steps that the journal has not come to.
};

struct MetricsFacts {
  const std::map<std::int64_t, checkpoint::StepRecord>* steps = nullptr;  ///< The journal's.
  std::map<std::int64_t, double> validation_losses;  ///< By step, as far as the index knows.
  /// The first so many digests of a step are those of weights; 0: not known.
  std::size_t weights = 0;
};

/// Compares every line, number by number, bitwise. A file that is missing is a problem only if
/// the journal has steps. Blocks.
[[nodiscard]] MetricsAudit audit_metrics(const std::filesystem::path& file,
                                         const MetricsFacts& facts);

}  // namespace train::cli
