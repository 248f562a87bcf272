#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace train::storage {

/// Result of one decompression call.
struct Unpacked {
  std::size_t used = 0;         ///< Input bytes consumed.
  std::size_t made = 0;         ///< Output bytes produced.
  bool inside = false;          ///< A member, frame or stream has begun, but not ended.
  bool has_more = false;        ///< More output may be available without more input.
  const char* fault = nullptr;  ///< Fault of the data, or what is missing; null: none.
};

/// Decompresses a file of consecutive parts (members, frames, streams). Threading: one owner.
/// Memory: a few MiB, or the window that the file asks for (zstd --long=31: 2 GiB).
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  /// REQUIRES: `out` is not empty; not called after a fault.
  virtual Unpacked unpack(std::span<const char> in, std::span<char> out) = 0;
};

/// Compression format, recognised by its first bytes.
struct PackedFormat {
  std::string_view name;
  std::string_view ending;  ///< Extension of such files.
  bool (*begins)(std::string_view head);
  /// Returns nullptr if out of memory.
  std::unique_ptr<Unpacker> (*make)();
};

/// Number of leading bytes that identify every format.
inline constexpr std::size_t kPackedHeadBytes = 16;

/// All supported formats.
[[nodiscard]] std::span<const PackedFormat> packed_formats();
/// Format of a file with this beginning; nullptr: none.
[[nodiscard]] const PackedFormat* packed_format_of(std::string_view head);

}  // namespace train::storage
