#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "checkpoint/load/reader.hpp"

namespace train::cli {

/// Content of a checkpoint, from its bytes.
struct CheckpointContent {
  checkpoint::Verification found;
  std::vector<std::string> tensors;    ///< engine::tensor_names() of its run, sorted.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its run, if the checkpoint
                                       ///< is intact.
};

/// Reads every byte of the checkpoint in `directory` once, using some MiB of memory. Blocks. Damage
/// is reported in the result; errors as verify_checkpoint().
[[nodiscard]] Result<CheckpointContent> read_content(const std::filesystem::path& directory);

/// Inconsistencies within a journal: unreadable records, missing steps, token counts. One line
/// each. Pure.
[[nodiscard]] std::vector<std::string> audit_journal(const checkpoint::StepJournal& journal,
                                                     std::int64_t tokens_per_step);

/// Statements of an intact checkpoint, and values computed from its bytes.
struct CheckpointFacts {
  std::int64_t step = 0;
  std::string name;  ///< Name of its directory.
  std::int64_t tokens = 0;
  std::string weights_digest;          ///< From the manifest; may be empty.
  std::vector<std::string> tensors;    ///< Sorted names.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its bytes.
};

/// Inconsistencies of a checkpoint with its run's journal, or within itself. One line each. Pure.
[[nodiscard]] std::vector<std::string> audit_checkpoint(const CheckpointFacts& facts,
                                                        const checkpoint::StepJournal& journal);

/// Comparison of metrics.jsonl with the journal.
struct MetricsAudit {
  std::vector<std::string> problems;  ///< One line each.
  std::int64_t steps = 0;             ///< Number of steps whose lines were compared.
  std::int64_t newer = 0;             ///< Number of lines for steps beyond the journal.
};

struct MetricsFacts {
  /// Records of the journal.
  const std::map<std::int64_t, checkpoint::StepRecord>* steps = nullptr;
  std::map<std::int64_t, double> validation_losses;  ///< By step, as far as the index has them.
  /// Number of leading digests of a step that are weights; 0: unknown.
  std::size_t weights = 0;
};

/// Compares every line, number by number, bitwise. A missing file is a problem only if the journal
/// has steps. Blocks.
[[nodiscard]] MetricsAudit audit_metrics(const std::filesystem::path& file,
                                         const MetricsFacts& facts);

}  // namespace train::cli
