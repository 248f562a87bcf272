#pragma once

#include <filesystem>
#include <memory>

#include "base/result.hpp"
#include "storage/inputs/byte_source.hpp"

namespace train::storage {

/// Rows of a Parquet file as JSON lines, in order, from a process of python3 with pyarrow that
/// lives as long as the source. Errors (user): missing file; no such python3, with what to install;
/// read errors come from read().
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_parquet_source(
    const std::filesystem::path& path);

}  // namespace train::storage
