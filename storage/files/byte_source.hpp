#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

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

/// By the name's end: .gz (zlib; one member or several), .zst (zstd; one frame or several),
/// .parquet (its rows as lines of JSON, by python3 with pyarrow), else as it is. Holds a few MiB.
/// Errors (user): missing, no regular file; no python3 with pyarrow, with what to install.
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_byte_source(
    const std::filesystem::path& path);

/// Whether a file is lines of JSON: by its name, without what says how it is compressed.
[[nodiscard]] bool holds_json_lines(const std::filesystem::path& path);

/// Lines of a source without their ends; a longer one than the limit is passed over, and reported
/// as empty with `too_long`. The last line need not end. What `take` returns ends the reading.
struct SourceLine {
  std::string_view text;
  std::uint64_t number = 1;
  bool too_long = false;
};
[[nodiscard]] Status read_source_lines(ByteSource& source, std::size_t limit_bytes,
                                       const std::function<Status(const SourceLine&)>& take);

}  // namespace train::storage
