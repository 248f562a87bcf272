#include "configs/validate_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>

#include "configs/fields/field_table.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/rules/rules.hpp"
#include "configs/words/nearest.hpp"

namespace train::configs {
namespace {

template <class Number>
bool inside(const Limits& limits, Number value) {
  // Integer limits are exact in a double, and compared as integers they stay exact.
  const auto low = static_cast<Number>(limits.low);
  const auto high = static_cast<Number>(limits.high);
  return (limits.low_excluded ? value > low : value >= low) &&
         (limits.high_excluded ? value < high : value <= high);
}

Status check_text(const Field& field, const std::string& value, const KeyPositions& places) {
  const std::vector<std::string> choices = split_choices(field);
  // Stored run files contain every key; check_model() decides whether this one may be empty.
  const bool not_given = value.empty() && field.key() == "model.arch";
  if (!choices.empty() && !not_given &&
      std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return broken(places, field.key(),
                  fmt::format("is \"{}\"; this version supports {}{}", value, allowed_values(field),
                              did_you_mean(value, choices, field.key())));
  }
  if (value.find('\0') != std::string::npos) {
    return broken(places, field.key(), "holds a zero byte");
  }
  return {};
}

Status check_text_or_integer(const Field& field, const std::string& value,
                             const KeyPositions& places) {
  const std::vector<std::string> choices = split_choices(field);
  const std::optional<std::int64_t> number = whole_number(value);
  if (number.has_value() ? inside(field.limits, *number)
                         : std::find(choices.begin(), choices.end(), value) != choices.end()) {
    return {};
  }
  return broken(places, field.key(),
                fmt::format("must be {}, found \"{}\"{}", allowed_values(field), value,
                            did_you_mean(value, choices, field.key())));
}

Status check_list(const Field& field, const std::vector<std::string>& values,
                  const KeyPositions& places) {
  for (const std::string& value : values) {
    if (value.empty() || value.find('\0') != std::string::npos) {
      return broken(places, field.key(),
                    value.empty() ? "holds an empty text; leave it out" : "holds a zero byte");
    }
  }
  return {};
}

Status check_numbers(const Field& field, const std::vector<std::int64_t>& values,
                     const KeyPositions& places) {
  if (values.empty()) {
    return broken(places, field.key(), "is empty; give one number or several");
  }
  for (const std::int64_t value : values) {
    if (!inside(field.limits, value)) {
      return broken(places, field.key(),
                    fmt::format("must hold numbers of {}, found {}", allowed_values(field), value));
    }
  }
  return {};
}

Status check_sources_values(const std::vector<DataSource>& sources, const KeyPositions& places) {
  for (std::size_t index = 0; index < sources.size(); ++index) {
    DataSource copy = sources[index];
    for (const SourceMember& member : source_members()) {
      const std::string key = source_key(index, member.name);
      TRAIN_RETURN_IF_ERROR(std::visit(
          [&](const auto* value) -> Status {
            using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
            if constexpr (std::is_same_v<Value, std::string>) {
              return value->empty() || value->find('\0') != std::string::npos
                         ? broken(places, key,
                                  fmt::format("is missing or no text; add {} = ... ({})",
                                              member.name, member.sentence))
                         : Status();
            } else {
              return inside(member.limits, *value)
                         ? Status()
                         : broken(
                               places, key,
                               fmt::format("must be {}, found {}", allowed_values(member), *value));
            }
          },
          member.locate(copy)));
    }
  }
  return {};
}

/// Line of a message "file:12: ..."; after all lines: a message without one, and last "--set ...".
std::int64_t line_of(std::string_view text) {
  if (text.starts_with("--set ")) {
    return std::numeric_limits<std::int64_t>::max();
  }
  for (std::size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1)) {
    const std::string_view rest = text.substr(at + 1);
    const auto line = whole_number(rest.substr(0, std::min(rest.find(':'), rest.size())));
    if (line) {
      return *line;
    }
  }
  return std::numeric_limits<std::int64_t>::max() - 1;
}

}  // namespace

const std::string& KeyPositions::of(std::string_view key) const {
  const auto found = by_key.find(key);
  if (found != by_key.end()) {
    return found->second;
  }
  // A member that is not given is where its table is: "data.sources[1].weight".
  const std::size_t bracket = key.find('[');
  const std::size_t member = key.find("].");
  return member != std::string_view::npos    ? of(key.substr(0, member + 1))
         : bracket != std::string_view::npos ? of(key.substr(0, bracket))
                                             : file;
}

Status check_value(const Field& field, const RunConfig& config, const KeyPositions& places) {
  return std::visit(
      [&](const auto* value) -> Status {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer ? check_text_or_integer(field, *value, places)
                                  : check_text(field, *value, places);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return check_list(field, *value, places);
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return check_numbers(field, *value, places);
        } else if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
          return check_sources_values(*value, places);
        } else if constexpr (!std::is_same_v<Value, bool>) {
          if (!inside(field.limits, *value)) {  // Rejects NaN as well.
            return broken(places, field.key(),
                          fmt::format("must be {}, found {}", allowed_values(field), *value));
          }
        }
        return {};
      },
      field.value_in(config));
}

void Mistakes::add(const Status& status) {
  if (!status) {
    texts_.push_back(status.error().message);
  }
}

Status Mistakes::result() const {
  if (texts_.empty()) {
    return {};
  }
  std::vector<std::string> sorted = texts_;
  std::ranges::stable_sort(sorted, {}, line_of);
  return Error{ErrorKind::user, fmt::format("{}", fmt::join(sorted, "\n"))};
}

Status validate_config(const RunConfig& config, const KeyPositions& places) {
  Mistakes values;
  for (const Field& field : all_fields()) {
    values.add(check_value(field, config, places));
  }
  TRAIN_RETURN_IF_ERROR(values.result());
  Rules rules(places);
  for (const auto check :
       {check_names, check_sources, check_model, check_experts, check_sizes, check_optimizer,
        check_objective, check_schedule, check_scaling, check_evaluation, check_checkpoint,
        check_memory, check_parallel, check_lora, check_status}) {
    check(config, rules);
  }
  return rules.result();
}

}  // namespace train::configs
