#include "storage/inputs/input_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/ascii.hpp"
#include "storage/inputs/record_cutter.hpp"

namespace train::storage {
namespace {

constexpr std::array<std::string_view, 5> kSaidNames = {"", "text", "json", "csv", "tsv"};
constexpr auto kJsonEndings = std::to_array<std::string_view>({".json", ".jsonl", ".ndjson"});
/// Members that identify examples; an unnamed table must have one of them in its first row.
constexpr auto kMemberNames = std::to_array<std::string_view>(
    {"text", "prompt", "completion", "response", "chosen", "rejected", "instruction", "output",
     "messages", "conversations", "question", "answer"});
constexpr std::size_t kRowsComparedMost = 20;
constexpr std::size_t kElementsLookedAt = 3;

struct TableKind {
  char delimiter;
  InputLayout layout;
};
/// Cell separators, the most common first.
constexpr auto kTableKinds = std::to_array<TableKind>({{',', InputLayout::csv},
                                                       {'\t', InputLayout::tsv},
                                                       {';', InputLayout::semicolons},
                                                       {'|', InputLayout::pipes}});

constexpr std::string_view kJsonSpaces = " \t\r\n";

bool is_object(std::string_view text) {
  return text.starts_with('{') && nlohmann::json::accept(text.begin(), text.end());
}

/// True if `wanted` follows the first character of `text` and spaces.
bool continues_with(std::string_view text, char wanted) {
  const std::size_t next = text.find_first_not_of(kJsonSpaces, 1);
  return next != std::string_view::npos && text[next] == wanted;
}

/// First value, if it ends within `text`.
std::optional<std::string> first_value(std::string_view text) {
  std::optional<std::string> first;
  const auto cutter = make_value_cutter(text.size());
  // The reading ends with the first record, by a user error.
  static_cast<void>(cutter->feed(text, [&](const InputRecord& record) -> Status {
    first = std::string(record.text);
    return user_error("enough");
  }));
  return first;
}

/// True if text that begins with a bracket, without an object after it, is an array: complete
/// elements, more than a footnote mark.
bool is_array(const InputHead& head, std::string_view text) {
  if (head.is_all) {
    return nlohmann::json::accept(text.begin(), text.end()) &&
           text.find_first_of("[{\"", 1) != std::string_view::npos;
  }
  std::size_t elements = 0;
  bool whole = true;
  const auto cutter = make_value_cutter(text.size());
  static_cast<void>(cutter->feed(text, [&](const InputRecord& record) -> Status {
    const char first = record.text.empty() ? ' ' : record.text.front();
    whole = whole && !record.fault && (first == '"' || first == '[' || first == '{') &&
            nlohmann::json::accept(record.text.begin(), record.text.end());
    return whole && ++elements < kElementsLookedAt ? Status{} : user_error("enough");
  }));
  return whole && elements == kElementsLookedAt;
}

/// Layout of text that begins with a bracket; nullopt: not JSON by its content.
std::optional<InputLayout> json_layout(const InputHead& head, bool is_named) {
  const std::string_view text = head.text.substr(head.text.find_first_not_of(kJsonSpaces));
  if (text.front() == '[') {
    const std::size_t next = text.find_first_not_of(kJsonSpaces, 1);
    const bool objects = next != std::string_view::npos && text[next] == '{' &&
                         continues_with(text.substr(next), '"');
    return objects || is_named || is_array(head, text) ? std::optional(InputLayout::json_values)
                                                       : std::nullopt;
  }
  const std::size_t line_end = text.find('\n');
  const std::string_view line = text.substr(0, line_end);
  if (is_object(line)) {
    return InputLayout::json_lines;
  }
  const auto value = first_value(text);
  if (value && is_object(*value) && continues_with(text.substr(value->size() - 1), '{')) {
    return InputLayout::json_values;  // Values one after the other, without line breaks.
  }
  if (line_end == std::string_view::npos) {
    // One line that is longer than the head, or is cut off by the end of the file.
    const bool cut = !head.is_all && continues_with(text, '"');
    return cut || is_named ? std::optional(InputLayout::json_lines) : std::nullopt;
  }
  if (value) {
    if (value->find('\n') != std::string::npos && is_object(*value)) {
      return InputLayout::json_values;
    }
  } else if (is_named && !continues_with(text.substr(line_end), '{')) {
    // A value that is longer than the head, or is cut off by the end of the file.
    return InputLayout::json_values;
  }
  // The first line is broken: the next ones decide.
  const std::string_view rest = text.substr(line_end + 1);
  const bool next_is_object = is_object(rest.substr(0, rest.find('\n')));
  return next_is_object || is_named ? std::optional(InputLayout::json_lines) : std::nullopt;
}

/// A cell that may name a column, and is hardly part of a sentence.
bool is_name(std::string_view cell) {
  return !cell.empty() && std::all_of(cell.begin(), cell.end(), [](char letter) {
    return is_alphanumeric(letter) || letter == '_' || letter == '-';
  });
}

/// True if the head's first row names members, and rows below have as many cells.
bool is_table(const InputHead& head, char delimiter) {
  const std::string_view names = head.text.substr(0, head.text.find_first_of("\r\n"));
  std::size_t begin = 0;
  bool known = false;
  std::size_t count = 0;
  std::string last;
  while (begin <= names.size()) {
    const std::size_t end = std::min(names.find(delimiter, begin), names.size());
    std::string_view name = names.substr(begin, end - begin);
    if (name.size() > 2 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    known =
        known || std::find(kMemberNames.begin(), kMemberNames.end(), name) != kMemberNames.end();
    if (!is_name(name)) {
      return false;
    }
    last = name;
    begin = end + 1;
    ++count;
  }
  if (!known || count < 2) {
    return false;
  }
  std::size_t rows = 0;
  std::size_t full = 0;
  bool equal = true;
  const auto cutter = make_table_cutter(delimiter, head.text.size());
  const TakeRecord take = [&](const InputRecord& record) -> Status {
    // Missing cells are null: in text, where commas come by chance, the last ones.
    const auto row = nlohmann::json::parse(record.text, nullptr, false);
    equal = equal && !record.fault && row.is_object() && row.size() == count;
    full += equal && !row.at(last).is_null() ? 1 : 0;
    return equal && ++rows < kRowsComparedMost ? Status{} : user_error("enough");
  };
  const Status fed = cutter->feed(head.text, take);
  if (fed.ok() && head.is_all) {
    static_cast<void>(cutter->finish(take));
  }
  return equal && rows > 0 && 2 * full >= rows;
}

/// Table layout by the first row; nullopt: not recognised as a table.
std::optional<InputLayout> table_layout(const InputHead& head) {
  const auto* const kind =
      std::find_if(kTableKinds.begin(), kTableKinds.end(),
                   [&](const TableKind& each) { return is_table(head, each.delimiter); });
  return kind == kTableKinds.end() ? std::nullopt : std::optional(kind->layout);
}

}  // namespace

Result<SaidLayout> said_layout_named(std::string_view name) {
  const auto* const found = std::find(kSaidNames.begin(), kSaidNames.end(), name);
  if (found == kSaidNames.end()) {
    return user_error(fmt::format("unknown layout of inputs \"{}\"; use one of {}", name,
                                  fmt::join(kSaidNames.begin() + 1, kSaidNames.end(), ", ")));
  }
  return static_cast<SaidLayout>(found - kSaidNames.begin());
}

InputLayout layout_of(const InputHead& head, SaidLayout said) {
  switch (said) {
    case SaidLayout::text:
      return InputLayout::text;
    case SaidLayout::csv:
      return table_layout(head).value_or(InputLayout::csv);
    case SaidLayout::tsv:
      return InputLayout::tsv;
    case SaidLayout::json:
    case SaidLayout::nothing:
      break;
  }
  const bool is_named =
      said == SaidLayout::json ||
      std::find(kJsonEndings.begin(), kJsonEndings.end(), head.ending) != kJsonEndings.end();
  const std::size_t first = head.text.find_first_not_of(kJsonSpaces);
  if (first != std::string_view::npos && (head.text[first] == '{' || head.text[first] == '[')) {
    if (const auto layout = json_layout(head, is_named)) {
      return *layout;
    }
  }
  if (is_named) {
    return InputLayout::json_lines;
  }
  if (const auto table = table_layout(head)) {
    return *table;
  }
  if (head.ending == ".csv") {
    return InputLayout::csv;
  }
  return head.ending == ".tsv" ? InputLayout::tsv : InputLayout::text;
}

}  // namespace train::storage
