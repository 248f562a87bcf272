#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace train::storage {

/// Limits of a JSON text for a parser.
struct JsonLimits {
  std::size_t bytes = 0;
  std::size_t values = 0;  ///< Number of values (numbers, strings, keys, objects, arrays), an upper
                           ///< bound.
  std::size_t run = 0;     ///< Bytes of a string, of a number, or of a gap.
  std::size_t depth = 8;   ///< Depth of nested brackets.
};

/// Empty if `text` keeps the limits, otherwise the exceeded one. Looks only at brackets, separators
/// and quotes, in one pass and without memory; validity is up to the parser. To be called before a
/// parser whose memory grows with the values.
[[nodiscard]] std::string json_excess(std::string_view text, const JsonLimits& limits);

/// `text` for an error message: in quotes, on one line, cut after 80 bytes, without control
/// characters.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace train::storage
