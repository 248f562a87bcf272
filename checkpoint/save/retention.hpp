#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index_entry.hpp"

namespace train::checkpoint {

/// Checkpoints to keep: those that any of the three rules wants.
struct RetentionRule {
  std::int64_t keep_last = 0;   ///< Number of newest ones; 0: all.
  std::int64_t keep_every = 0;  ///< Steps that are a multiple of this; 0: off.
  /// Number of best_steps(); 0: off. One whose loss was lost in a rebuild of the index is kept too,
  /// as it may be among them.
  std::int64_t keep_best = 0;
};

/// Steps of the checkpoints in place with the lowest validation loss (for pairs and judged answers
/// the objective's), the best first, the earlier on ties: at most `count`. Those without a loss, or
/// with NaN, are none of them. Pure.
[[nodiscard]] std::vector<std::int64_t> best_steps(std::span<const IndexEntry> entries,
                                                   std::int64_t count = 1);

/// Steps of `committed` (by step, all in place) that may be removed, oldest first. The newest is
/// always kept, so an only one is too (CK-6). Pure.
[[nodiscard]] std::vector<std::int64_t> to_retire(std::span<const IndexEntry> committed,
                                                  const RetentionRule& rule);

/// Removes the checkpoint of `step`: renamed to .retired-* first, durably, so that no partial one
/// ever has a checkpoint's name; the next start removes what a crash leaves (CK-2). Missing: fine.
/// Blocks. Errors: (user) it names another run than `identity`, and stays.
Status retire(const std::filesystem::path& checkpoints, std::int64_t step,
              const RunIdentity& identity = {});

}  // namespace train::checkpoint
