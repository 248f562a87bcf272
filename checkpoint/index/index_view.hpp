#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/index/index_entry.hpp"

namespace train::checkpoint {

/// Checkpoints of a run, seen from outside.
struct IndexView {
  std::vector<IndexEntry> entries;  ///< In place, retired, and in progress; by step.
  /// Reason why the entries come only from the manifests in place; empty: they come from the index,
  /// whose chain is intact.
  std::string without_index;
};

/// Reads the index and the names in `checkpoints`, changes nothing and takes no lock: for
/// observers, also while the run writes. Where the two differ the directory is authoritative. An
/// index that is missing, damaged or behind is no error. Blocks. Errors: reading the directory.
Result<IndexView> view_index(const std::filesystem::path& index,
                             const std::filesystem::path& checkpoints);

}  // namespace train::checkpoint
