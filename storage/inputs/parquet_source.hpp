#pragma once

#include <filesystem>
#include <memory>

#include "base/result.hpp"
#include "storage/inputs/byte_source.hpp"

namespace train::storage {

/// The rows of a Parquet file as lines of JSON, in their order, by a process of python3 with
/// pyarrow that lives as long as this. Errors (user): no such file; no such python3, with what to
/// install; those of reading come from read().
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_parquet_source(
    const std::filesystem::path& path);

}  // namespace train::storage
