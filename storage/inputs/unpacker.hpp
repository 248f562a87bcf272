#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace train::storage {

/// What one call of a library did.
struct Unpacked {
  std::size_t used = 0;         ///< Bytes of the input.
  std::size_t made = 0;         ///< Bytes of the output.
  bool inside = false;          ///< A member, frame or stream has begun, and not ended.
  bool has_more = false;        ///< There may be output that needs no more input.
  const char* fault = nullptr;  ///< What is wrong with the data, or lacks; null: nothing.
};

/// Decompresses a file whose parts (members, frames, streams) follow one another. Threading: one
/// owner. Memory: a few MiB, or the window that the file asks for (zstd --long=31: 2 GiB).
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  /// REQUIRES: `out` is not empty. Nothing is asked after a fault.
  virtual Unpacked unpack(std::span<const char> in, std::span<char> out) = 0;
};

/// A way in which files are compressed, known by the bytes with which they begin.
struct PackedFormat {
  std::string_view name;
  std::string_view ending;  ///< That names of such files have.
  bool (*begins)(std::string_view head);
  /// Null: no memory.
  std::unique_ptr<Unpacker> (*make)();
};

/// Bytes of a file's beginning that tell every format.
inline constexpr std::size_t packed_head_bytes = 16;

/// All that are read.
[[nodiscard]] std::span<const PackedFormat> packed_formats();
/// The one that begins so; null: none.
[[nodiscard]] const PackedFormat* packed_format_of(std::string_view head);

}  // namespace train::storage
