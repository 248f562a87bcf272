#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "storage/text/origins.hpp"

namespace train::storage {

/// Character for a space in SentencePiece and similar vocabularies.
inline constexpr std::string_view kSpaceMarker = "\u2581";

/// Code point of a text, and its length in bytes.
struct CodePoint {
  char32_t value = 0;
  unsigned length = 0;
};

/// Code point at `text`. REQUIRES: valid UTF-8 there.
[[nodiscard]] inline CodePoint code_point_at(const char* text) {
  const auto byte = [text](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) {
    return {first, 1};
  }
  if (first < 0xe0) {
    return {((first & 0x1fU) << 6U) | (byte(1) & 0x3fU), 2};
  }
  if (first < 0xf0) {
    return {((first & 0x0fU) << 12U) | ((byte(1) & 0x3fU) << 6U) | (byte(2) & 0x3fU), 3};
  }
  return {((first & 0x07U) << 18U) | ((byte(1) & 0x3fU) << 12U) | ((byte(2) & 0x3fU) << 6U) |
              (byte(3) & 0x3fU),
          4};
}

/// True for a continuation byte.
[[nodiscard]] constexpr bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// Begin of the code point that ends before `end`. REQUIRES: valid UTF-8, end > begin.
[[nodiscard]] inline const char* previous_code_point(const char* begin, const char* end) {
  --end;
  while (end > begin && continues(*end)) {
    --end;
  }
  return end;
}

void append_utf8(std::string& text, char32_t value);

/// Number of leading bytes below 0x80.
[[nodiscard]] std::size_t ascii_prefix(std::string_view text);

/// Number of leading bytes that are complete UTF-8 code points.
[[nodiscard]] std::size_t valid_prefix(std::string_view text);

/// Replaces each maximal invalid prefix of a code point in `text` by U+FFFD, and adds their number
/// to `replaced`.
[[nodiscard]] std::string repaired_utf8(std::string_view text, std::uint64_t& replaced);

/// repaired_utf8() with the origin in `text` of each byte of the result: its character, or the
/// invalid bytes. REQUIRES: a text of less than 4 GiB.
[[nodiscard]] std::string repaired_utf8(std::string_view text, std::uint64_t& replaced,
                                        Origins& origins);

/// Counts what repaired_utf8() would replace in a text that comes in pieces.
class Utf8Breaks {
 public:
  void add(std::string_view piece);
  /// Call at the end of the text.
  void finish();
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  /// Counts in all but the trailing bytes that may begin a code point, which it returns.
  std::string count(std::string_view text);

  std::string begun_;  ///< Bytes that may begin a code point.
  std::uint64_t count_ = 0;
};

}  // namespace train::storage
