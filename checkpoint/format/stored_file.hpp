#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "storage/files/input_file.hpp"
#include "storage/safetensors.hpp"

namespace train::checkpoint {

/// Open file of a checkpoint, or the reason why it cannot be opened (one line), which is damage.
struct StoredFile {
  std::optional<storage::InputFile> file;
  std::string damage;
};

/// Opens the file `name` of the directory `checkpoint`. Missing, a link, a pipe, a directory: a
/// finding. Nothing outside the directory is opened. REQUIRES: `name` has no directory part.
/// Errors: no permission (user), out of memory or descriptors (failure).
Result<StoredFile> open_stored(const std::filesystem::path& checkpoint, const std::string& name);

/// Empty if a file's tensor has the type and shape of the record's rows.
[[nodiscard]] std::string entry_defect(const storage::TensorEntry& entry,
                                       const TensorRecord& record);

}  // namespace train::checkpoint
