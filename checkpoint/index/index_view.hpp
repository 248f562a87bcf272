#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/index/index_entry.hpp"

namespace train::checkpoint {

/// The checkpoints of a run as one sees them from outside.
struct IndexView {
  std::vector<IndexEntry> entries;  ///< In place, retired, and under way; by step.
  /// Why the entries are those of the manifests in place alone; empty: they are the index's, and
  /// its chain holds.
  std::string without_index;
};

/// Reads the index and the names in `checkpoints`, changes nothing and takes no lock: for programs
/// that look on, also while the run writes. Where the two differ the directory is right. An index
/// that is missing, damaged or behind is no error. Blocks. Errors: reading the directory.
Result<IndexView> view_index(const std::filesystem::path& index,
                             const std::filesystem::path& checkpoints);

}  // namespace train::checkpoint
