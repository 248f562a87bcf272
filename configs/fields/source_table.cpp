#include "configs/fields/source_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "configs/fields/toml_text.hpp"

namespace train::configs {
namespace {

constexpr std::string_view kSources = "data.sources";

// First members of a SourceMember: its name is that of its value in a DataSource.
#define MEMBER(name) [](DataSource& source) -> SourcePointer { return &source.name; }, #name

constexpr auto kMembers = std::to_array<SourceMember>({
    {MEMBER(dir), "path",
     "Directory as of `data.dir`: token files or packed rows, of one kind, tokenizer and row "
     "length "
     "with those of the other sources.",
     BetweenStarts::may_move, Limits{}, true},
    {MEMBER(weight), "",
     "Share of the rows of a step, relative to the other sources of the same `from_step`.",
     BetweenStarts::on_request, Limits{.low = 0, .high = 1e12, .low_excluded = true}},
    {MEMBER(max_epochs), "epochs",
     "Largest number of times that the run reads each row; a run that needs more is refused; 0: no "
     "limit.",
     BetweenStarts::may_change, Limits{.low = 0, .high = 1e9}},
    {MEMBER(from_step), "steps",
     "Finished steps after which the source is read. Sources of one `from_step` are a stage: from "
     "then on they alone are read, up to the next stage. A directory may be in several stages.",
     BetweenStarts::on_request, Limits{.low = 0, .high = 1e9}},
});

#undef MEMBER

}  // namespace

std::span<const SourceMember> source_members() { return kMembers; }

const SourceMember* find_source_member(std::string_view name) {
  const auto found = std::ranges::find(kMembers, name, &SourceMember::name);
  return found == kMembers.end() ? nullptr : &*found;
}

std::string_view type_name(const SourceMember& member) {
  DataSource source;
  const SourcePointer value = member.locate(source);
  return std::holds_alternative<std::string*>(value) ? "text"
         : std::holds_alternative<double*>(value)    ? "number"
                                                     : "integer";
}

std::string allowed_values(const SourceMember& member) {
  const std::string_view type = type_name(member);
  if (type == "text") {
    return "any";
  }
  const Limits& limits = member.limits;
  return type == "integer" ? fmt::format("{:.0f} .. {:.0f}", limits.low, limits.high)
                           : fmt::format("{} {} x <= {}", limits.low,
                                         limits.low_excluded ? "<" : "<=", limits.high);
}

std::string toml_value(const SourceMember& member, const DataSource& source) {
  DataSource copy = source;
  return std::visit(
      [](const auto* value) -> std::string {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return toml_quoted(*value);
        } else if constexpr (std::is_same_v<Value, double>) {
          return float_text(*value);
        } else {
          return fmt::format("{}", *value);
        }
      },
      member.locate(copy));
}

std::string toml_value(const std::vector<DataSource>& sources) {
  std::vector<std::string> tables;
  for (const DataSource& source : sources) {
    std::vector<std::string> parts;
    parts.reserve(std::size(kMembers));
    for (const SourceMember& member : kMembers) {
      parts.push_back(fmt::format("{} = {}", member.name, toml_value(member, source)));
    }
    tables.push_back(fmt::format("{{{}}}", fmt::join(parts, ", ")));
  }
  return fmt::format("[{}]", fmt::join(tables, ", "));
}

std::string source_key(std::size_t index, std::string_view member) {
  return fmt::format("{}[{}].{}", kSources, index, member);
}

SourcePath parse_source_path(std::string_view path) {
  if (!path.starts_with(kSources) || path.size() <= kSources.size() ||
      path[kSources.size()] != '[') {
    return {};
  }
  const std::string_view rest = path.substr(kSources.size() + 1);
  const std::size_t end = rest.find("].");
  const auto index =
      end == std::string_view::npos ? std::nullopt : whole_number(rest.substr(0, end));
  return index ? SourcePath{.index = static_cast<std::size_t>(*index),
                            .member = find_source_member(rest.substr(end + 2))}
               : SourcePath{};
}

}  // namespace train::configs
