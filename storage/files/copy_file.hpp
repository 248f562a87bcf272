#pragma once

#include <filesystem>

#include "base/result.hpp"

namespace train::storage {

/// Copies a file of at most 256 MiB; the copy is whole or absent (ST-1). Blocks.
/// Errors: those of InputFile::open and read_text, and of write_file_atomically.
Status copy_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace train::storage
