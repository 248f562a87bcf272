#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace train::data {

/// Byte vocabularies are written as text, with a printable character for every byte: printable
/// bytes of ASCII and Latin-1 stand for themselves, the others for U+0100 and on, in order.

/// Byte for a character.
[[nodiscard]] std::optional<unsigned char> byte_level_byte(char32_t character);

/// Bytes in the notation of a vocabulary.
[[nodiscard]] std::string to_byte_level(std::string_view bytes);

/// Bytes of a vocabulary's text; nullopt if a character stands for no byte. REQUIRES: valid UTF-8.
[[nodiscard]] std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace train::data
