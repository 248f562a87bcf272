#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace train::storage {

/// Vocabularies of bytes are written as text, with a printable character for every byte: those of
/// ASCII and Latin-1 that print stand for themselves, U+0100 and on for the others in their order.

/// The character that stands for a byte.
[[nodiscard]] char32_t byte_level_character(unsigned char byte);

/// The byte that a character stands for.
[[nodiscard]] std::optional<unsigned char> byte_level_byte(char32_t character);

/// Bytes as a vocabulary writes them.
[[nodiscard]] std::string to_byte_level(std::string_view bytes);

/// The bytes that a text of a vocabulary means; nothing where a character stands for none.
/// REQUIRES: valid UTF-8.
[[nodiscard]] std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace train::storage
