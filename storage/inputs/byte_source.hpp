#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace train::storage {

/// Sequential bytes of an input. Threading: one owner. Calls block on the disk, or on the program
/// that reads the file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `out`; returns the number of bytes, 0 at the end. Errors (user): damaged or
  /// truncated; names the file. REQUIRES: `out` is not empty.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
  /// Bytes of the file read so far, for progress.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
};

/// Opens by content, whatever the name: formats of unpacker.hpp are decompressed, rows of a Parquet
/// or Arrow file become JSON lines (by python3 with pyarrow), everything else is passed through.
/// Holds a few MiB. Errors (user): missing, not a regular file; a name of a compressed, Parquet or
/// Arrow file with other content; no python3 with pyarrow, with what to install.
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_byte_source(
    const std::filesystem::path& path);

/// Extension without the one for compression, in lower case: ".json" for "A.JSON.gz".
[[nodiscard]] std::string content_ending(const std::filesystem::path& path);

}  // namespace train::storage
