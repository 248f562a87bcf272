#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// How examples lie in an input.
enum class InputLayout : std::uint8_t {
  text,
  json_lines,
  json_values,  ///< An array, or values over several lines each.
  csv,
  tsv,
  semicolons,  ///< As spreadsheets write CSV where the comma is the decimal point.
  pipes,
};

/// What the user may say of inputs, where their beginning does not tell: "text", "json", "csv",
/// "tsv".
enum class SaidLayout : std::uint8_t { nothing, text, json, csv, tsv };
/// Errors (user): lists the names.
[[nodiscard]] Result<SaidLayout> said_layout_named(std::string_view name);

/// The beginning of what an input holds.
struct InputHead {
  std::string_view text;  ///< Without a byte order mark.
  bool is_all = false;    ///< There is no more.
  std::string ending;     ///< As content_ending() has it.
};

/// By the content: what begins as JSON does is JSON, a first row that names members of examples
/// with rows of as many cells below it is a table. The name decides where the content does not
/// (.json, .jsonl, .ndjson, .csv, .tsv); all else is text. Pure.
[[nodiscard]] InputLayout layout_of(const InputHead& head, SaidLayout said);

}  // namespace train::storage
