#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "storage/tokenizer/text/origins.hpp"

namespace train::storage {

/// What SentencePiece and its kin write for a space.
inline constexpr std::string_view space_marker = "\u2581";

/// A code point of a text, and the bytes that it takes there.
struct CodePoint {
  char32_t value = 0;
  unsigned length = 0;
};

/// The code point that begins at `text`. REQUIRES: valid UTF-8 there.
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

/// Whether a byte continues a code point.
[[nodiscard]] constexpr bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// Where the code point that ends before `end` begins. REQUIRES: valid UTF-8, end > begin.
[[nodiscard]] inline const char* previous_code_point(const char* begin, const char* end) {
  --end;
  while (end > begin && continues(*end)) {
    --end;
  }
  return end;
}

void append_utf8(std::string& text, char32_t value);

/// Bytes at the beginning that are below 0x80.
[[nodiscard]] std::size_t ascii_prefix(std::string_view text);

/// Bytes at the beginning that are whole code points in UTF-8.
[[nodiscard]] std::size_t valid_prefix(std::string_view text);

/// `text` with U+FFFD for every longest run of bytes that begins a code point and breaks off; how
/// many is added to `replaced`.
[[nodiscard]] std::string repaired_utf8(std::string_view text, std::uint64_t& replaced);

/// The same, with what each byte of the result stands for in `text`: the character that it is part
/// of, or the run that broke off. REQUIRES: a text of less than 4 GiB.
[[nodiscard]] std::string repaired_utf8(std::string_view text, std::uint64_t& replaced,
                                        Origins& origins);

/// Counts what repaired_utf8() would replace in a text that comes in pieces.
class Utf8Breaks {
 public:
  void add(std::string_view piece);
  /// The text is at its end.
  void finish();
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  /// Of all but the bytes at the end that may begin a code point, which it returns.
  std::string count(std::string_view text);

  std::string begun_;  ///< Those.
  std::uint64_t count_ = 0;
};

}  // namespace train::storage
