#include "run/directory/config_changes.hpp"

#include <fmt/format.h>

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

std::string change_warning(const configs::KeyChange& change, const configs::RunConfig& config,
                           std::int64_t step) {
  const bool of_length = change.path == "run.steps";
  const auto before = of_length ? configs::whole_number(change.before) : std::nullopt;
  if (before) {
    return fmt::format(
        "run.steps was {} and is {} now: the learning-rate schedule follows the new length from "
        "here on; {}{}",
        *before, config.run.steps, rates_text(config, *before, step),
        slow_average_text(config.optimizer));
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
