#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace train::storage {

/// Names a binary format that no reader here supports, by its first bytes: "a ZIP archive; unpack
/// it first". Empty: may be text. Signatures shorter than `shortest` bytes are not considered.
[[nodiscard]] std::string binary_content(std::string_view head, std::size_t shortest = 1);

/// Fraction of characters that text does not contain: invalid UTF-8, and control characters other
/// than white space and terminal escapes. The last character of `head` may be cut.
[[nodiscard]] double unreadable_share(std::string_view head);

}  // namespace train::storage
