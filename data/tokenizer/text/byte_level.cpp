#include "data/tokenizer/text/byte_level.hpp"

#include <array>

#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

constexpr char32_t first_substitute = 0x100;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t substitute = first_substitute;
  for (unsigned byte = 0; byte < 256; ++byte) {
    characters[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : substitute++;
  }
  return characters;
}

constexpr std::array<char32_t, 256> byte_characters = make_characters();

/// Bytes that U+0100 and on stand for.
constexpr std::array<unsigned char, 68> make_substituted() {
  std::array<unsigned char, 68> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (byte_characters[byte] >= first_substitute) {
      bytes[byte_characters[byte] - first_substitute] = static_cast<unsigned char>(byte);
    }
  }
  return bytes;
}

constexpr std::array<unsigned char, 68> substituted_bytes = make_substituted();

}  // namespace

std::optional<unsigned char> byte_level_byte(char32_t character) {
  if (character < first_substitute) {
    return stands_for_itself(character) ? std::optional(static_cast<unsigned char>(character))
                                        : std::nullopt;
  }
  const std::size_t index = character - first_substitute;
  return index < substituted_bytes.size() ? std::optional(substituted_bytes[index]) : std::nullopt;
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    storage::append_utf8(text, byte_characters[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const storage::CodePoint point = storage::code_point_at(text.data() + at);
    const auto byte = byte_level_byte(point.value);
    if (!byte) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(*byte));
    at += point.length;
  }
  return bytes;
}

}  // namespace train::data
