#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.hpp"
#include "storage/inputs/byte_source.hpp"

namespace train::storage {

/// File formats whose rows pyarrow reads.
enum class RowFormat : std::uint8_t {
  parquet,
  arrow,  ///< An IPC stream, as datasets.save_to_disk writes it, or an IPC file.
};

/// Rows of a Parquet or Arrow file as JSON lines, in order, from a process of python3 with pyarrow
/// that lives as long as the source. Errors (user): missing file; no such python3, with what to
/// install; read errors come from read().
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_row_source(const std::filesystem::path& path,
                                                                  RowFormat format);

}  // namespace train::storage
