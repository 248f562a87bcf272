#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace train::storage {

/// Bytes of an input, front to back. Threading: one owner. Calls block on the disk, or on the
/// program that reads the file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `out`; how much, 0: the end. Errors (user): damaged or cut short; names
  /// the file. REQUIRES: `out` is not empty.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
  /// Bytes of the file that were read so far: for progress.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
};

/// By the first bytes, whatever the name is: what unpacker.hpp lists is decompressed, a Parquet
/// file's rows are lines of JSON (by python3 with pyarrow), all else is as it is. Holds a few MiB.
/// Errors (user): missing, no regular file; named as compressed or Parquet, and not so; no python3
/// with pyarrow, with what to install.
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_byte_source(
    const std::filesystem::path& path);

/// The end of a file's name without what says how it is compressed, in lower case: ".json" of
/// "A.JSON.gz".
[[nodiscard]] std::string content_ending(const std::filesystem::path& path);
/// ASCII letters alone.
[[nodiscard]] std::string lower_case(std::string text);

}  // namespace train::storage
