#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "configs/fields/field_table.hpp"
#include "configs/sections/data_section.hpp"

namespace train::configs {

/// Pointer to a member's value in a table of data.sources; the alternative is its type.
using SourcePointer = std::variant<std::int64_t*, double*, std::string*>;

/// Member of the tables of data.sources, the one key whose value is a list of tables.
struct SourceMember {
  SourcePointer (*locate)(DataSource&);
  std::string_view name;      ///< "weight"
  std::string_view unit;      ///< Empty: a plain number or text.
  std::string_view sentence;  ///< Purpose, and meaning of special values.
  BetweenStarts between_starts;
  Limits limits = {};  ///< For numbers.
  bool required = false;
};

/// All members, in the order in which they are written.
[[nodiscard]] std::span<const SourceMember> source_members();

/// Member of that name, or null.
[[nodiscard]] const SourceMember* find_source_member(std::string_view name);

/// "text", "integer" or "number".
[[nodiscard]] std::string_view type_name(const SourceMember& member);

/// "1 .. 10", "0 < x <= 1" or "any".
[[nodiscard]] std::string allowed_values(const SourceMember& member);

/// Value of a member as TOML.
[[nodiscard]] std::string toml_value(const SourceMember& member, const DataSource& source);

/// "[{dir = ..., weight = ...}, ...]", on one line; parsing it gives exactly the same sources.
[[nodiscard]] std::string toml_value(const std::vector<DataSource>& sources);

/// Key of a member of source `index`, counted from 0: "data.sources[1].weight".
[[nodiscard]] std::string source_key(std::size_t index, std::string_view member);

/// Source and member that a path like "data.sources[1].weight" names; member null: it names none.
struct SourcePath {
  std::size_t index = 0;
  const SourceMember* member = nullptr;
};
[[nodiscard]] SourcePath parse_source_path(std::string_view path);

}  // namespace train::configs
