#include "data/tokenizer/text/byte_level.hpp"

#include <array>

#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t substitute = kFirstSubstitute;
  for (unsigned byte = 0; byte < 256; ++byte) {
    characters[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : substitute++;
  }
  return characters;
}

constexpr std::array<char32_t, 256> kByteCharacters = make_characters();

/// Bytes that U+0100 and on stand for.
constexpr std::array<unsigned char, 68> make_substituted() {
  std::array<unsigned char, 68> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (kByteCharacters[byte] >= kFirstSubstitute) {
      bytes[kByteCharacters[byte] - kFirstSubstitute] = static_cast<unsigned char>(byte);
    }
  }
  return bytes;
}

constexpr std::array<unsigned char, 68> kSubstitutedBytes = make_substituted();

}  // namespace

std::optional<unsigned char> byte_level_byte(char32_t character) {
  if (character < kFirstSubstitute) {
    return stands_for_itself(character) ? std::optional(static_cast<unsigned char>(character))
                                        : std::nullopt;
  }
  const std::size_t index = character - kFirstSubstitute;
  return index < kSubstitutedBytes.size() ? std::optional(kSubstitutedBytes[index]) : std::nullopt;
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    storage::append_utf8(text, kByteCharacters[static_cast<unsigned char>(byte)]);
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
