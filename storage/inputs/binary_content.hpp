#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace train::storage {

/// What bytes that no reader of texts, tables or token files reads are, by how they begin: "a ZIP
/// archive; unpack it first". Empty: they may be text.
/// Of beginnings of fewer bytes than `shortest` nothing is said.
[[nodiscard]] std::string binary_content(std::string_view head, std::size_t shortest = 1);

/// The share of characters that no text has: breaks in UTF-8, and control characters but for white
/// space and escapes of terminals. Of `head`, whose last character may be cut.
[[nodiscard]] double unreadable_share(std::string_view head);

}  // namespace train::storage
