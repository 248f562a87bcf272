#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// Layout of examples in an input.
enum class InputLayout : std::uint8_t {
  text,
  json_lines,
  json_values,  ///< An array, or values over several lines each.
  csv,
  tsv,
  semicolons,  ///< CSV as spreadsheets write it where the comma is the decimal point.
  pipes,
};

/// Layouts that the user may give if the content is ambiguous: "text", "json", "csv", "tsv".
enum class SaidLayout : std::uint8_t { nothing, text, json, csv, tsv };
/// Errors (user): lists the names.
[[nodiscard]] Result<SaidLayout> said_layout_named(std::string_view name);

/// Beginning of an input's content.
struct InputHead {
  std::string_view text;  ///< Without a byte order mark.
  bool is_all = false;    ///< The content ends here.
  std::string ending;     ///< From content_ending().
};

/// Layout by content: text that begins like JSON is JSON; a first row that names members of
/// examples, above rows of as many cells, is a table. If the content is ambiguous, the name decides
/// (.json, .jsonl, .ndjson, .csv, .tsv); everything else is text. Pure.
[[nodiscard]] InputLayout layout_of(const InputHead& head, SaidLayout said);

}  // namespace train::storage
