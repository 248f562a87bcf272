// Text output of fields: TOML values, ranges, the printed table.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>
#include <type_traits>

#include "base/check.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/named_options.hpp"
#include "configs/fields/toml_text.hpp"

namespace train::configs {
namespace {

std::string_view between_starts_text(BetweenStarts rule) {
  switch (rule) {
    case BetweenStarts::stays:
      return "stays";
    case BetweenStarts::may_change:
      return "may change";
    case BetweenStarts::may_move:
      return "may move";
    case BetweenStarts::warns:
      return "may change, with a warning";
    case BetweenStarts::unsaid:
      break;
  }
  TRAIN_CHECK(false, "a key that does not say what another value means for a run that goes on");
}

bool is_whole(const Field& field) {
  RunConfig config;
  const FieldPointer pointer = field.locate(config);
  return std::holds_alternative<std::int64_t*>(pointer) ||
         std::holds_alternative<std::uint64_t*>(pointer) || field.or_integer;
}

std::string list_text(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  std::transform(values.begin(), values.end(), std::back_inserter(parts), toml_quoted);
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string limit_text(const Field& field, double limit) {
  return is_whole(field) ? fmt::format("{:.0f}", limit) : fmt::format("{}", limit);
}

}  // namespace

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (letter == '\n') {
      out += "\\n";
    } else if (letter == '\t') {
      out += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\u{:04X}", code);
    } else {
      out += letter;
    }
  }
  return out + '"';
}

std::string float_text(double value) {
  TRAIN_CHECK(std::isfinite(value));
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string Field::key() const { return fmt::format("{}.{}", section, name); }

const Field* find_field(std::string_view key) {
  const std::span<const Field> fields = all_fields();
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return field.key() == key; });
  return found == fields.end() ? nullptr : &*found;
}

std::string_view type_name(const Field& field) {
  RunConfig config;
  return std::visit(
      [&](auto* value) -> std::string_view {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return "boolean";
        } else if constexpr (std::is_same_v<Value, double>) {
          return "number";
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer ? "text or integer" : "text";
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return "list of texts";
        } else {
          return "integer";
        }
      },
      field.locate(config));
}

std::vector<std::string> split_choices(const Field& field) {
  std::vector<std::string> out;
  std::string_view rest = field.choices;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    out.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::string allowed_values(const Field& field) {
  const std::string_view type = type_name(field);
  if (type == "boolean") {
    return "true, false";
  }
  if (type == "list of texts") {
    return "any";
  }
  const std::string texts = fmt::format("\"{}\"", fmt::join(split_choices(field), "\", \""));
  if (type == "text") {
    return field.choices.empty() ? "any" : texts;
  }
  const Limits& limits = field.limits;
  const std::string low = limit_text(field, limits.low);
  const std::string high = limit_text(field, limits.high);
  if (field.or_integer) {
    return fmt::format("{}, {} .. {}", texts, low, high);
  }
  if (is_whole(field)) {
    return fmt::format("{} .. {}", low, high);
  }
  return fmt::format("{} {} x {} {}", low,
                     limits.low_excluded ? "<" : "<=", limits.high_excluded ? "<" : "<=", high);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = code == std::errc() && stop == text.data() + text.size();
  return whole && text == fmt::format("{}", value) && value >= 0 ? std::optional(value)
                                                                 : std::nullopt;
}

std::string toml_value(const Field& field, const RunConfig& config) {
  RunConfig copy = config;
  return std::visit(
      [&](auto* value) -> std::string {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, double>) {
          return float_text(*value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer && whole_number(*value) ? *value : toml_quoted(*value);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return list_text(*value);
        } else {
          return fmt::format("{}", *value);
        }
      },
      field.locate(copy));
}

std::string to_toml(const RunConfig& config, Origins origins) {
  std::string out;
  std::string_view section;
  for (const Field& field : all_fields()) {
    if (!applies(field, config)) {
      continue;
    }
    if (field.section != section) {
      section = field.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    const auto origin = config.origins.find(field.key());
    const bool shown = origins == Origins::shown && origin != config.origins.end();
    out += fmt::format("{} = {}{}\n", field.name, toml_value(field, config),
                       shown ? fmt::format("  # {}", origin->second) : "");
  }
  return out;
}

std::string describe_keys_markdown() {
  const RunConfig defaults;
  std::string out =
      "| key | type | unit | default | allowed | between starts | what it does |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Field& field : all_fields()) {
    const std::string value =
        field.required ? "required" : fmt::format("`{}`", toml_value(field, defaults));
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", field.key(), type_name(field),
                       field.unit.empty() ? "–" : field.unit, value, allowed_values(field),
                       between_starts_text(field.between_starts), field.sentence);
  }
  return out;
}

}  // namespace train::configs
