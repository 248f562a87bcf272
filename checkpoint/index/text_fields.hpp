#pragma once

#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

// Parsing of the index's records, which are texts of fields.
namespace train::checkpoint {

/// All of `text` as a number; nullopt: malformed, or out of range.
template <class Integer>
std::optional<Integer> number_in(std::string_view text, int base = 10) {
  Integer value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return code == std::errc() && stop == text.data() + text.size() && !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

/// Double from the hexadecimal digits of its bits.
inline std::optional<double> double_of(std::string_view bits) {
  const auto number = number_in<std::uint64_t>(bits, 16);
  return number ? std::optional(std::bit_cast<double>(*number)) : std::nullopt;
}

inline std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

/// Removes and returns the first field of `rest`; `separator` ends it.
inline std::string_view next_field(std::string_view& rest, char separator = ' ') {
  const std::size_t end = rest.find(separator);
  const std::string_view field = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return field;
}

}  // namespace train::checkpoint
