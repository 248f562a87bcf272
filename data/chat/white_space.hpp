#pragma once

#include <string>
#include <string_view>

namespace train::data {

// White space as defined by Python's strip(), hence by templates that trim: Unicode's included.

/// `text` without leading and trailing white space.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// `text` without any white space.
[[nodiscard]] std::string without_white_space(std::string_view text);
/// True if `text` is all white space.
[[nodiscard]] bool is_blank(std::string_view text);

}  // namespace train::data
