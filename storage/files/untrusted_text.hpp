#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace train::storage {

/// What a JSON text may ask of a parser.
struct JsonLimits {
  std::size_t bytes = 0;
  std::size_t values = 0;  ///< Numbers, strings, keys, objects, arrays; counted from above.
  std::size_t run = 0;     ///< Bytes of a string, of a number, or of a gap.
  std::size_t depth = 8;   ///< Brackets open at once.
};

/// Empty if `text` keeps the limits, else what it exceeds. Looks at brackets, separators and quotes
/// alone, in one pass and without memory; whether it is JSON is for the parser to say. To be asked
/// before a parser whose memory grows with the values.
[[nodiscard]] std::string json_excess(std::string_view text, const JsonLimits& limits);

/// `text` for an error message: in quotes, on one line, cut after 80 bytes, and without control
/// characters, whatever it holds.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace train::storage
