#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// Reason why a line (or a table row, or an array element) of an input yields nothing.
enum class LineFault : std::uint8_t {
  too_long,
  cut_off,         ///< It ends within a value.
  half_surrogate,  ///< \ud83d without its other half is not a character.
  no_number,       ///< NaN or Infinity.
  huge_number,     ///< 1e999.
  bad_byte,        ///< Invalid UTF-8.
  control,         ///< An unescaped control character.
  not_json,        ///< Anything else that is not JSON.
  no_object,       ///< JSON, but not an object: null, a number, a text or a list.
  fields,          ///< A row with more fields than the table's header.
  open_quote,      ///< A table cell whose opening quote is never closed.
  no_text,         ///< No member "text".
  null_text,       ///< The member is null.
  other_text,      ///< The member is not a string.
  empty_text,
};
inline constexpr std::size_t kLineFaultCount = 15;
/// Noun phrase for messages: "half a surrogate pair".
[[nodiscard]] std::string_view line_fault_text(LineFault fault);

/// Position of the first JSON error before the end of the text; nullopt: it may be a prefix of
/// JSON.
[[nodiscard]] std::optional<std::size_t> json_mistake(std::string_view text);
/// Fault of a line that is not a JSON object. Parses it again, as such lines are rare.
[[nodiscard]] LineFault json_fault(std::string_view line);

/// Lines dropped for one reason, with the first of them.
struct DropTally {
  std::uint64_t lines = 0;
  std::string first = {};  ///< "FILE:LINE", and the subject.
};

/// Text for the user: "12 dropped: half a surrogate pair, the first at FILE:LINE".
[[nodiscard]] std::string dropped_line(const DropTally& tally, std::string_view reason);

struct LineTally {
  std::uint64_t lines = 0;    ///< Non-blank lines.
  std::uint64_t dropped = 0;  ///< Lines dropped.
};
/// Error (user): more than the fraction `most` was dropped. `worst`: dropped_line() of the most
/// frequent fault.
[[nodiscard]] Status check_dropped(const LineTally& tally, double most, const std::string& worst);

}  // namespace train::storage
