#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index_entry.hpp"

namespace train::checkpoint {

/// Which checkpoints stay. One that any of the three wants stays.
struct RetentionRule {
  std::int64_t keep_last = 0;   ///< The newest so many; 0: all of them.
  std::int64_t keep_every = 0;  ///< Those whose step is a multiple of this; 0: none for that.
  /// So many with the lowest validation loss, the newer of equals; 0: none for that. One whose loss
  /// was lost with an earlier index stays too, as it may be among them.
  std::int64_t keep_best = 0;
};

/// Steps of `committed` (by step, all in place) that may go, oldest first. The newest always stays,
/// so the only one does (CK-6). Pure.
[[nodiscard]] std::vector<std::int64_t> to_retire(std::span<const IndexEntry> committed,
                                                  const RetentionRule& rule);

/// Removes the checkpoint of `step`: renamed to .retired-* first, durably, so that no half of one
/// ever carries a checkpoint's name; what a crash leaves of it goes at the next start (CK-2).
/// Missing: fine. Blocks. Errors: (user) it names another run than `identity`: it stays.
Status retire(const std::filesystem::path& checkpoints, std::int64_t step,
              const RunIdentity& identity = {});

}  // namespace train::checkpoint
