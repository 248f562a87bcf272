#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "base/result.hpp"
#include "storage/inputs/byte_source.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/inputs/record_cutter.hpp"

namespace train::storage {

/// Longest line, row or element of an input. A longer document belongs in a text file.
inline constexpr std::size_t kRecordLimitBytes = std::size_t{32} << 20;

/// Input whose compression and layout are detected by content, whatever its name. Threading: one
/// owner. Memory: a few MiB, and a record.
class InputReader {
 public:
  /// Errors (user): as open_byte_source(); binary content, by name; mostly invalid UTF-8, unless
  /// `said` is text.
  static Result<InputReader> open(const std::filesystem::path& path,
                                  SaidLayout said = SaidLayout::nothing);

  [[nodiscard]] InputLayout layout() const { return layout_; }
  /// Content from the beginning (for a table or JSON without a byte order mark).
  [[nodiscard]] ByteSource& bytes() { return *bytes_; }

  /// Reads all records, in order. For a text these are its lines, as if they were JSON: the caller
  /// reports the fault. Errors: read errors; errors of `take`.
  Status read_records(const TakeRecord& take);

 private:
  InputReader(std::unique_ptr<ByteSource> bytes, InputLayout layout)
      : bytes_(std::move(bytes)), layout_(layout) {}

  std::unique_ptr<ByteSource> bytes_;
  InputLayout layout_;
};

/// Fraction of U+FFFD and control characters beyond which an input is not accepted as text.
inline constexpr double kUnreadableShareMost = 0.3;
[[nodiscard]] Error no_text_error(const std::filesystem::path& path, double unreadable);

}  // namespace train::storage
