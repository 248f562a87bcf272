#include "configs/validate_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "configs/field_table.hpp"
#include "configs/nearest.hpp"

namespace train::configs {
namespace {

// Tokens of one lane stay addressable with 32-bit counts; tokens of a step times the largest
// number of steps stay below 2^62.
constexpr std::int64_t kLargestLaneTokens = std::int64_t{1} << 31;
constexpr std::int64_t kLargestStepTokens = std::int64_t{1} << 32;
constexpr std::size_t kLongestName = 200;

Error broken(const Places& places, std::string_view key, const std::string& rule) {
  return user_error(fmt::format("{}: {} {}", places.of(key), key, rule));
}

template <class Number>
bool inside(const Limits& limits, Number value) {
  // Whole limits are exact in a double, and compared as integers they stay exact.
  const auto low = static_cast<Number>(limits.low);
  const auto high = static_cast<Number>(limits.high);
  return (limits.low_excluded ? value > low : value >= low) &&
         (limits.high_excluded ? value < high : value <= high);
}

Status check_text(const Field& field, const std::string& value, const Places& places) {
  const std::vector<std::string> choices = split_choices(field);
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return broken(places, field.key(),
                  fmt::format("is \"{}\"; this version supports {}{}", value, allowed_values(field),
                              did_you_mean(value, choices)));
  }
  if (value.find('\0') != std::string::npos) {
    return broken(places, field.key(), "holds a zero byte");
  }
  return {};
}

Status check_field(const Field& field, RunConfig& config, const Places& places) {
  return std::visit(
      [&](const auto* value) -> Status {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return check_text(field, *value, places);
        } else if constexpr (!std::is_same_v<Value, bool>) {
          // A NaN is inside of nothing.
          if (!inside(field.limits, *value)) {
            return broken(places, field.key(),
                          fmt::format("must be {}, found {}{}", allowed_values(field), *value,
                                      field.limits.low == field.limits.high
                                          ? "; other values are not supported by this version"
                                          : ""));
          }
        }
        return {};
      },
      field.locate(config));
}

Status check_names(const RunConfig& config, const Places& places) {
  const std::string& name = config.run.name;
  if (name.empty()) {
    return broken(places, "run.name", "is empty; name the run");
  }
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    return broken(places, "run.name",
                  fmt::format("is \"{}\"; it becomes one directory below run.dir, so no \"/\", "
                              "\".\" or \"..\"",
                              name));
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < 32 || letter == 127;
  });
  if (control || name.size() > kLongestName) {
    return broken(places, "run.name",
                  fmt::format("must be at most {} bytes of printable text", kLongestName));
  }
  if (config.run.dir.empty()) {
    return broken(places, "run.dir", "is empty; \".\" is the current directory");
  }
  if (config.data.dir.empty()) {
    return broken(places, "data.dir",
                  "is empty; name a directory that \"actortrain data prepare\" made");
  }
  return {};
}

Status check_sizes(const RunConfig& config, const Places& places) {
  if (config.model.head_dim % 2 != 0) {
    return broken(
        places, "model.head_dim",
        fmt::format("must be even (the rotation turns pairs), found {}", config.model.head_dim));
  }
  const std::int64_t lane_tokens = config.batch.micro_batch * config.data.sequence_length;
  if (lane_tokens >= kLargestLaneTokens) {
    return broken(places, "batch.micro_batch",
                  fmt::format("times data.sequence_length is {} tokens a lane; at most {} fit",
                              lane_tokens, kLargestLaneTokens - 1));
  }
  for (const auto& [key, lanes] :
       {std::pair<std::string_view, std::int64_t>("batch.lanes", config.batch.lanes),
        {"eval.lanes", config.eval.lanes}}) {
    if (lane_tokens * lanes > kLargestStepTokens) {
      return broken(places, key,
                    fmt::format("times batch.micro_batch times data.sequence_length is {} tokens; "
                                "at most {} are possible",
                                lane_tokens * lanes, kLargestStepTokens));
    }
  }
  return {};
}

Status check_schedule(const RunConfig& config, const Places& places) {
  const ScheduleSection& schedule = config.schedule;
  if (schedule.warmup_steps >= config.run.steps) {
    return broken(places, "schedule.warmup_steps",
                  fmt::format("must be below run.steps ({}), found {}", config.run.steps,
                              schedule.warmup_steps));
  }
  if (schedule.constant_tail_steps > 0 && schedule.name != "cos_inf") {
    return broken(
        places, "schedule.constant_tail_steps",
        fmt::format("belongs to schedule \"cos_inf\", not \"{}\"; set it to 0", schedule.name));
  }
  if (schedule.warmup_steps + schedule.constant_tail_steps > config.run.steps) {
    return broken(
        places, "schedule.constant_tail_steps",
        fmt::format("({}) and schedule.warmup_steps ({}) exceed run.steps ({})",
                    schedule.constant_tail_steps, schedule.warmup_steps, config.run.steps));
  }
  return {};
}

}  // namespace

const std::string& Places::of(std::string_view key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? file : found->second;
}

Status validate_config(const RunConfig& config, const Places& places) {
  RunConfig copy = config;
  for (const Field& field : all_fields()) {
    TRAIN_RETURN_IF_ERROR(check_field(field, copy, places));
  }
  TRAIN_RETURN_IF_ERROR(check_names(config, places));
  TRAIN_RETURN_IF_ERROR(check_sizes(config, places));
  return check_schedule(config, places);
}

}  // namespace train::configs
