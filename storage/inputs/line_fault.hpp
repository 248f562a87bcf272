#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Tallies with the names of their reasons.
using DropReasons = std::vector<std::pair<DropTally, std::string_view>>;

/// Reasons that dropped lines, the most frequent first. `text` names a reason.
template <class Tallies, class Reason>
[[nodiscard]] DropReasons drop_reasons(const Tallies& tallies, std::string_view (*text)(Reason)) {
  DropReasons reasons;
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (tallies[i].lines > 0) {
      reasons.emplace_back(tallies[i], text(static_cast<Reason>(i)));
    }
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.first.lines > b.first.lines; });
  return reasons;
}

/// One line: "12 dropped: half a surrogate pair, the first at FILE:LINE; 3 dropped: ...".
[[nodiscard]] std::string dropped_text(const DropReasons& reasons);
/// Lines of a table with a heading; none without reasons.
[[nodiscard]] std::vector<std::string> dropped_table(const DropReasons& reasons);

struct LineTally {
  std::uint64_t lines = 0;    ///< Non-blank lines.
  std::uint64_t dropped = 0;  ///< Lines dropped.
};
/// Error (user): more than the fraction `most` was dropped. `reasons`: dropped_text() of all.
[[nodiscard]] Status check_dropped(const LineTally& tally, double most, const std::string& reasons);

}  // namespace train::storage
