#pragma once

#include <string>
#include <string_view>

namespace train::storage {

// White space as Python's strip() has it, and so the templates that trim: also that of Unicode.

/// Without the white space around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Without any.
[[nodiscard]] std::string without_white_space(std::string_view text);
/// Whether it is nothing else.
[[nodiscard]] bool is_blank(std::string_view text);

}  // namespace train::storage
