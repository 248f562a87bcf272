#include "configs/validate_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "configs/field_table.hpp"
#include "configs/nearest.hpp"
#include "configs/optimizer_table.hpp"
#include "configs/rules.hpp"

namespace train::configs {
namespace {

// Tokens of one lane stay addressable with 32-bit counts; tokens of a step times the largest
// number of steps stay below 2^62.
constexpr std::int64_t kLargestLaneTokens = std::int64_t{1} << 31;
constexpr std::int64_t kLargestStepTokens = std::int64_t{1} << 32;
constexpr std::size_t kLongestName = 200;

template <class Number>
bool inside(const Limits& limits, Number value) {
  // Whole limits are exact in a double, and compared as integers they stay exact.
  const auto low = static_cast<Number>(limits.low);
  const auto high = static_cast<Number>(limits.high);
  return (limits.low_excluded ? value > low : value >= low) &&
         (limits.high_excluded ? value < high : value <= high);
}

Status check_text(const Field& field, const std::string& value, const KeyPositions& places) {
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
                            did_you_mean(value, choices)));
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

Status check_names(const RunConfig& config, const KeyPositions& places) {
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

Status check_order(const RunConfig& config, const KeyPositions& places) {
  if (config.data.order != "dstar" && config.data.seed != DataSection{}.seed) {
    return broken(places, "data.seed",
                  fmt::format("belongs to data.order \"dstar\"; in the order \"{}\" it is run.seed "
                              "that decides what is read when",
                              config.data.order));
  }
  return {};
}

Status check_sizes(const RunConfig& config, const KeyPositions& places) {
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

Status check_decay(const RunConfig& config, const KeyPositions& places) {
  const ScheduleSection& schedule = config.schedule;
  const std::int64_t decay_steps = wsd_decay_steps(schedule, config.run.steps);
  if (schedule.warmup_steps + decay_steps > config.run.steps) {
    return broken(
        places, "schedule.decay_fraction",
        fmt::format("({}) of run.steps ({}) is {} steps, which exceed the run together "
                    "with schedule.warmup_steps ({})",
                    schedule.decay_fraction, config.run.steps, decay_steps, schedule.warmup_steps));
  }
  if (schedule.decay_shape == "exp" && schedule.decay_floor <= 0.0) {
    return broken(places, "schedule.decay_floor",
                  "must be above 0 where schedule.decay_shape is \"exp\": a power of it is what "
                  "the learning rate is multiplied with");
  }
  return {};
}

Status check_schedule(const RunConfig& config, const KeyPositions& places) {
  const ScheduleSection& schedule = config.schedule;
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
  return schedule.name == "wsd" ? check_decay(config, places) : Status{};
}

Status check_scaling(const RunConfig& config, const KeyPositions& places) {
  const ScalingSection& scaling = config.scaling;
  if (scaling.rule.empty()) {
    return broken(places, "scaling.rule", "is empty; \"none\" uses no rule");
  }
  if (scaling.rule != "none") {
    return {};
  }
  const char* useless = scaling.heads != 0 ? "scaling.heads" : "scaling.table";
  if (scaling.heads != 0 || !scaling.table.empty()) {
    return broken(places, useless, "is of no use while scaling.rule is \"none\"; name a rule");
  }
  return {};
}

Status check_checkpoint(const RunConfig& config, const KeyPositions& places) {
  const CheckpointSection& checkpoint = config.checkpoint;
  if (checkpoint.local_dir.empty()) {
    return broken(places, "checkpoint.local_dir",
                  "is empty; \"none\" writes checkpoints straight to the run's directory");
  }
  const std::int64_t evaluated = config.eval.interval_steps;
  if (checkpoint.keep_best > 0 && (evaluated == 0 || checkpoint.interval_steps % evaluated != 0)) {
    return broken(places, "checkpoint.keep_best",
                  fmt::format("is {}, which needs every checkpoint evaluated: eval.interval_steps "
                              "({}) must divide checkpoint.interval_steps ({})",
                              checkpoint.keep_best, evaluated, checkpoint.interval_steps));
  }
  return {};
}

/// Texts "pattern = strategy".
Status check_recovery(const RunConfig& config, const KeyPositions& places) {
  if (config.recovery.snapshot_interval_steps == 1) {
    return broken(places, "recovery.snapshot_interval_steps",
                  "is 1: a snapshot would begin while other ranks still make the one before; use 2 "
                  "or more, or 0 for none");
  }
  return {};
}

Status check_strategy_by_unit(const RunConfig& config, const KeyPositions& places) {
  const std::string key = "parallel.strategy_by_unit";
  const std::vector<std::string> known = split_choices(*find_field("parallel.strategy"));
  for (const std::string& rule : config.parallel.strategy_by_unit) {
    const std::optional<UnitStrategy> parsed = parse_unit_strategy(rule);
    if (!parsed.has_value()) {
      return broken(places, key,
                    fmt::format("holds \"{}\"; write \"pattern = strategy\", for example "
                                "\"block * = full\"",
                                rule));
    }
    if (std::find(known.begin(), known.end(), parsed->strategy) == known.end()) {
      return broken(places, key,
                    fmt::format("names the strategy \"{}\"; there are \"{}\"{}", parsed->strategy,
                                fmt::join(known, "\", \""), did_you_mean(parsed->strategy, known)));
    }
  }
  return {};
}

bool uses_hybrid(const ParallelSection& parallel) {
  const auto& rules = parallel.strategy_by_unit;
  return parallel.strategy == "hybrid" ||
         std::any_of(rules.begin(), rules.end(), [](const std::string& rule) {
           const std::optional<UnitStrategy> parsed = parse_unit_strategy(rule);
           return parsed.has_value() && parsed->strategy == "hybrid";
         });
}

Status check_group(const RunConfig& config, const KeyPositions& places) {
  const ParallelSection& parallel = config.parallel;
  if (!uses_hybrid(parallel) && parallel.group != 0) {
    return broken(places, "parallel.group",
                  fmt::format("is {}, but only the strategy \"hybrid\" has groups; set it to 0",
                              parallel.group));
  }
  if (uses_hybrid(parallel) && (parallel.group == 0 || parallel.ranks % parallel.group != 0)) {
    return broken(places, "parallel.group",
                  fmt::format("must be a divisor of parallel.ranks ({}) with the strategy "
                              "\"hybrid\", found {}",
                              parallel.ranks, parallel.group));
  }
  return {};
}

Status check_wrapping(const RunConfig& config, const KeyPositions& places) {
  const std::vector<std::string>& wrapping = config.parallel.wrapping;
  if (wrapping.empty()) {
    return broken(places, "parallel.wrapping",
                  "is empty; give \"per_block\", \"by_size\" or patterns of unit names");
  }
  const bool rule = std::any_of(wrapping.begin(), wrapping.end(), [](const std::string& text) {
    return text == "per_block" || text == "by_size";
  });
  if (rule && wrapping.size() > 1) {
    return broken(places, "parallel.wrapping",
                  "is \"per_block\" or \"by_size\" alone, or patterns of unit names");
  }
  return {};
}

Status check_nodes(const RunConfig& config, const KeyPositions& places) {
  const ParallelSection& parallel = config.parallel;
  if (parallel.ranks % parallel.nodes != 0) {
    return broken(places, "parallel.nodes",
                  fmt::format("must be a divisor of parallel.ranks ({}), found {}", parallel.ranks,
                              parallel.nodes));
  }
  if (parallel.nodes > 1 && parallel.transport == "inproc") {
    return broken(places, "parallel.nodes",
                  fmt::format("is {}, but with parallel.transport \"inproc\" all ranks are in one "
                              "process; use \"gloo\" or \"nccl\"",
                              parallel.nodes));
  }
  if (parallel.nodes > 1 && parallel.interface.empty()) {
    return broken(places, "parallel.interface",
                  fmt::format("is empty, but parallel.nodes is {}: name the private network that "
                              "joins the nodes (\"lo\" to try it on one machine)",
                              parallel.nodes));
  }
  return {};
}

Status check_device(const RunConfig& config, const KeyPositions& places) {
  if (config.runtime.device != "cuda" && config.parallel.transport == "nccl") {
    return broken(places, "parallel.transport",
                  fmt::format("is \"nccl\", which moves memory of CUDA devices, but runtime.device "
                              "is \"{}\"; use \"gloo\", or set runtime.device to \"cuda\"",
                              config.runtime.device));
  }
  return {};
}

Status check_parallel(const RunConfig& config, const KeyPositions& places) {
  if (config.parallel.ranks > config.batch.lanes) {
    return broken(places, "parallel.ranks",
                  fmt::format("is {}, but a step has {} lanes and each rank needs one; raise "
                              "batch.lanes or use fewer ranks",
                              config.parallel.ranks, config.batch.lanes));
  }
  TRAIN_RETURN_IF_ERROR(check_strategy_by_unit(config, places));
  TRAIN_RETURN_IF_ERROR(check_group(config, places));
  TRAIN_RETURN_IF_ERROR(check_wrapping(config, places));
  return check_nodes(config, places);
}

}  // namespace

std::optional<UnitStrategy> parse_unit_strategy(std::string_view rule) {
  const auto trimmed = [](std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    const std::size_t last = text.find_last_not_of(" \t");
    return first == std::string_view::npos ? std::string()
                                           : std::string(text.substr(first, last - first + 1));
  };
  const std::size_t equals = rule.rfind('=');
  if (equals == std::string_view::npos) {
    return std::nullopt;
  }
  UnitStrategy parsed{trimmed(rule.substr(0, equals)), trimmed(rule.substr(equals + 1))};
  const bool whole = !parsed.pattern.empty() && !parsed.strategy.empty();
  return whole ? std::optional(std::move(parsed)) : std::nullopt;
}

const std::string& KeyPositions::of(std::string_view key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? file : found->second;
}

Status check_value(const Field& field, const RunConfig& config, const KeyPositions& places) {
  RunConfig copy = config;
  return std::visit(
      [&](const auto* value) -> Status {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer ? check_text_or_integer(field, *value, places)
                                  : check_text(field, *value, places);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return check_list(field, *value, places);
        } else if constexpr (!std::is_same_v<Value, bool>) {
          // A NaN is inside of nothing.
          if (!inside(field.limits, *value)) {
            return broken(places, field.key(),
                          fmt::format("must be {}, found {}", allowed_values(field), *value));
          }
        }
        return {};
      },
      field.locate(copy));
}

Status validate_config(const RunConfig& config, const KeyPositions& places) {
  for (const Field& field : all_fields()) {
    TRAIN_RETURN_IF_ERROR(check_value(field, config, places));
  }
  TRAIN_RETURN_IF_ERROR(check_names(config, places));
  TRAIN_RETURN_IF_ERROR(check_order(config, places));
  TRAIN_RETURN_IF_ERROR(check_sizes(config, places));
  TRAIN_RETURN_IF_ERROR(check_optimizer(config, places));
  TRAIN_RETURN_IF_ERROR(check_schedule(config, places));
  TRAIN_RETURN_IF_ERROR(check_scaling(config, places));
  TRAIN_RETURN_IF_ERROR(check_checkpoint(config, places));
  TRAIN_RETURN_IF_ERROR(check_recovery(config, places));
  TRAIN_RETURN_IF_ERROR(check_device(config, places));
  TRAIN_RETURN_IF_ERROR(check_memory(config, places));
  return check_parallel(config, places);
}

}  // namespace train::configs
