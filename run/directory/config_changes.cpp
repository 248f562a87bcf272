#include "run/directory/config_changes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/index/text_fields.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "engine/optimizer/lr_schedule.hpp"

namespace train::run {
namespace {

constexpr std::string_view kStep = "step=";

/// Learning rates around the change, for steps counted from 1.
std::string rates_text(const configs::RunConfig& config, std::int64_t before, std::int64_t step) {
  const auto rate = [&config](std::int64_t update, std::int64_t steps) {
    return engine::learning_rate(config.schedule, config.optimizer.lr, update, steps);
  };
  if (step >= config.run.steps) {
    return fmt::format("{} steps are done, so none is left", step);
  }
  const double now = rate(step, config.run.steps);
  if (step < before) {
    return fmt::format(
        "the learning rate of step {} is {:.6g} by the old length, {:.6g} by the new", step + 1,
        rate(step, before), now);
  }
  return fmt::format(
      "the learning rate goes from {:.6g} of step {}, the last of the old length, to {:.6g} of "
      "step {}",
      rate(before - 1, before), before, now, step + 1);
}

/// Text for ademamix*, whose default averages follow the length of the run.
std::string_view slow_average_text(const configs::OptimizerSection& section) {
  const bool follows =
      configs::has_key(section.name, "beta3") && (section.beta3 == 0.0 || section.alpha == 0.0);
  return follows ? "; optimizer.beta3 and optimizer.alpha follow the new length where they are 0"
                 : "";
}

/// Text for a longer run whose schedule falls over all of its length.
std::string schedule_text(const configs::RunConfig& config, std::int64_t before) {
  const std::string& name = config.schedule.name;
  return config.run.steps <= before || name == "wsd" || name == "constant"
             ? ""
             : fmt::format(
                   "; a run that is to be prolonged takes schedule.name = \"wsd\" or "
                   "\"constant\", whose rate depends on its length at the end or not at "
                   "all, instead of \"{}\"",
                   name);
}

}  // namespace

std::string change_text(const configs::KeyChange& change, std::int64_t step) {
  return fmt::format("{}{} key={} old={} new={}", kStep, step, change.path, change.before_text(),
                     change.now_text());
}

std::optional<std::int64_t> change_step(std::string_view text) {
  if (!text.starts_with(kStep)) {
    return std::nullopt;
  }
  text.remove_prefix(kStep.size());
  const std::string_view number = checkpoint::next_field(text);
  return text.empty() ? std::nullopt : checkpoint::number_in<std::int64_t>(number);
}

const configs::Field* changed_field(std::string_view text) {
  constexpr std::string_view kKey = " key=";
  text.remove_prefix(std::min(text.find(kKey), text.size()));
  text.remove_prefix(std::min(kKey.size(), text.size()));
  const std::string_view path = text.substr(0, text.find(' '));
  if (const configs::Field* const whole = configs::find_field(path)) {
    return whole;
  }
  return configs::find_field(path.substr(0, path.find_first_of(".[", path.find('.') + 1)));
}

std::string change_warning(const configs::KeyChange& change, const configs::RunConfig& config,
                           std::int64_t step) {
  const bool of_length = change.path == "run.steps";
  const auto before = of_length ? configs::whole_number(change.before) : std::nullopt;
  if (before) {
    return fmt::format(
        "run.steps was {} and is {} now: the learning-rate schedule follows the new length from "
        "here on; {}{}{}",
        *before, config.run.steps, rates_text(config, *before, step),
        slow_average_text(config.optimizer), schedule_text(config, *before));
  }
  if (configs::stays(change.rule()) || change.follows_length) {
    return fmt::format("{} was {} and is {} now{}: the steps from {} on use the new value",
                       change.path, change.before_text(), change.now_text(),
                       change.follows_length ? ", as run.steps has changed" : "", step + 1);
  }
  const configs::PrecisionSection& precision = config.precision;
  const bool any_ranks = precision.reduce == "fp32" && precision.determinism == "world";
  if (!any_ranks && change.path.starts_with("parallel.")) {
    return fmt::format(
        "{} was {} and is {} now: with precision.reduce = \"{}\" and precision.determinism = "
        "\"{}\" the bits of the steps from {} on depend on it",
        change.path, change.before_text(), change.now_text(), precision.reduce,
        precision.determinism, step + 1);
  }
  return {};
}

}  // namespace train::run
