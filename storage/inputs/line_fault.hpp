#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// Why a line (or a row of a table, or an element of an array) of an input gives nothing.
enum class LineFault : std::uint8_t {
  too_long,
  cut_off,         ///< It ends within a value.
  half_surrogate,  ///< \ud83d without the other half: no character.
  no_number,       ///< NaN or Infinity.
  huge_number,     ///< 1e999.
  bad_byte,        ///< No UTF-8.
  control,         ///< A control character that is not escaped.
  not_json,        ///< Anything else that JSON does not have.
  no_object,       ///< JSON, but null, a number, a text or a list.
  fields,          ///< A row of more fields than the table's header.
  open_quote,      ///< A cell of a table begins with a quote that nothing closes.
  no_text,         ///< No member "text".
  null_text,       ///< It is null.
  other_text,      ///< It is no string.
  empty_text,
};
inline constexpr std::size_t line_fault_count = 15;
/// Without an article's sentence around it: "half a surrogate pair".
[[nodiscard]] std::string_view line_fault_text(LineFault fault);

/// Where a text that was to be JSON goes wrong before its end; none: it may be the beginning of
/// JSON.
[[nodiscard]] std::optional<std::size_t> json_mistake(std::string_view text);
/// Of a line that is no JSON object. Reads it once more: for the few that are not.
[[nodiscard]] LineFault json_fault(std::string_view line);

/// Lines dropped for one reason, and the first of them.
struct DropTally {
  std::uint64_t lines = 0;
  std::string first = {};  ///< "FILE:LINE", and what it is about.
};

/// For the user: "12 dropped: half a surrogate pair, the first at FILE:LINE".
[[nodiscard]] std::string dropped_line(const DropTally& tally, std::string_view reason);

struct LineTally {
  std::uint64_t lines = 0;    ///< That are not blank.
  std::uint64_t dropped = 0;  ///< Of those.
};
/// Error (user): more than `most` (a share) were dropped. `worst`: dropped_line() of what took
/// most.
[[nodiscard]] Status check_dropped(const LineTally& tally, double most, const std::string& worst);

}  // namespace train::storage
