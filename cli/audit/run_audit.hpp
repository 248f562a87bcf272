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

/// A checkpoint as its bytes are.
struct CheckpointContent {
  checkpoint::Verification found;
  std::vector<std::string> tensors;    ///< Sorted names: engine::tensor_names() of its run.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its run, if it is whole.
};

/// Reads every byte of the checkpoint in `directory` once, with memory for some MiB. Blocks.
/// Damage is a finding; errors as verify_checkpoint().
[[nodiscard]] Result<CheckpointContent> read_content(const std::filesystem::path& directory);

/// What of the journal does not fit itself: records that cannot be read, steps missing in between,
/// numbers of tokens. A line for each. Pure.
[[nodiscard]] std::vector<std::string> audit_journal(const checkpoint::StepJournal& journal,
                                                     std::int64_t tokens_per_step);

/// What a whole checkpoint says of itself, and what was computed from its bytes.
struct CheckpointFacts {
  std::int64_t step = 0;
  std::string name;  ///< Of its directory.
  std::int64_t tokens = 0;
  std::string weights_digest;          ///< Of the manifest; may be empty.
  std::vector<std::string> tensors;    ///< Sorted names.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its bytes.
};

/// What of a checkpoint does not fit the journal of its run, or itself. A line for each. Pure.
[[nodiscard]] std::vector<std::string> audit_checkpoint(const CheckpointFacts& facts,
                                                        const checkpoint::StepJournal& journal);

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
