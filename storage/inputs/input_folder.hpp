#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// Data files of a folder, in the order in which they are read.
struct InputFolder {
  std::vector<std::filesystem::path> files;  ///< At least one.
  /// Choice among several, for the user: a split, a revision. Empty: there was no choice.
  std::vector<std::string> notes = {};
};

/// Lists the data files of a folder: what datasets.save_to_disk wrote (a data set, or several
/// splits of which it takes "train"), a data set in the cache of the Hugging Face hub (of which it
/// takes the revision "main"), or files of one kind, in order of their paths. Of files or folders
/// named for splits it takes those of "train". Blocks. Errors (user): not readable; no data file;
/// splits or configurations among which the user must choose, with their names; rows selected by an
/// index.
[[nodiscard]] Result<InputFolder> list_input_folder(const std::filesystem::path& folder);

}  // namespace train::storage
