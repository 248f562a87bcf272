#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.hpp"
#include "storage/inputs/byte_source.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/inputs/record_cutter.hpp"

namespace train::storage {

/// Longest line, row or element of an input. A document that is longer belongs in a text file.
inline constexpr std::size_t record_limit_bytes = std::size_t{32} << 20;

/// An input, known by its content whatever its name: how it is compressed, and how examples lie in
/// it. Threading: one owner. Memory: a few MiB, and a record.
class InputReader {
 public:
  /// Errors (user): as open_byte_source(); bytes that are no text, said by name; a text of mostly
  /// other bytes than UTF-8's, unless `said` is text.
  static Result<InputReader> open(const std::filesystem::path& path,
                                  SaidLayout said = SaidLayout::nothing);

  [[nodiscard]] InputLayout layout() const { return layout_; }
  /// What it holds, from its beginning on (of a table or of JSON without a byte order mark).
  [[nodiscard]] ByteSource& bytes() { return *bytes_; }

  /// All records, in order. A text's are its lines, as if it were JSON: who reads them says what
  /// they lack. Errors: those of reading; `take`'s.
  Status read_records(const TakeRecord& take);

 private:
  InputReader(std::unique_ptr<ByteSource> bytes, InputLayout layout)
      : bytes_(std::move(bytes)), layout_(layout) {}

  std::unique_ptr<ByteSource> bytes_;
  InputLayout layout_;
};

/// What of an input's text may be U+FFFD or control characters before it is taken for no text.
inline constexpr double unreadable_share_most = 0.3;
[[nodiscard]] Error no_text_error(const std::filesystem::path& path, double unreadable);

}  // namespace train::storage
