#include "engine/rank/rank_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "engine/optimizer/registry.hpp"

// Plans from options, with the errors a user can mend.

namespace train::engine {

ModelSpec trained_model(const RankOptions& options) {
  ModelSpec model = options.model;
  model.frozen = options.train.freeze;
  return model;
}

Result<ShardPlan> plan_of(const RankOptions& options) {
  std::vector<UnitParameters> units = describe_units(trained_model(options));
  std::vector<std::string> whole =
      whole_parameters(*make_optimizer(options.optimizer, options.total_steps), units);
  whole.insert(whole.end(), options.whole_parameters.begin(), options.whole_parameters.end());
  return ShardPlan::make({.parallel = options.parallel,
                          .precision = options.precision,
                          .units = std::move(units),
                          .train_lanes = options.batch.lanes,
                          .eval_lanes = options.eval_lanes + options.scored_lanes,
                          .tied = options.model.tie_embeddings,
                          .whole_parameters = std::move(whole)});
}

Status check_freeze(const RankOptions& options) {
  const std::vector<UnitParameters> units = describe_units(options.model);
  for (const std::string& pattern : options.train.freeze) {
    const bool found = std::any_of(units.begin(), units.end(), [&](const UnitParameters& unit) {
      return matches(pattern, unit.name) ||
             std::any_of(
                 unit.parameters.begin(), unit.parameters.end(),
                 [&](const Parameter& parameter) { return matches(pattern, parameter.name); });
    });
    if (!found) {
      return user_error(fmt::format(
          "train.freeze: \"{}\" matches no parameter and no unit; units are called \"{}\" to "
          "\"{}\", parameters \"{}\"",
          pattern, units.front().name, units.back().name, units.front().parameters.front().name));
    }
  }
  if (lowest_trained_unit(trained_model(options)) == units.size()) {
    return user_error("train.freeze leaves nothing to train: name fewer parameters and units");
  }
  return {};
}

Checkpointing checkpointing_of(const configs::MemorySection& section) {
  const std::string& text = section.activation_checkpointing;
  Checkpointing checkpointing;
  if (section.checkpointed_part != "block") {
    checkpointing.part = section.checkpointed_part == "mlp" ? Recompute::mlp : Recompute::attention;
  }
  if (text == "none" || text == "all") {
    checkpointing.every = text == "all" ? 1 : 0;
    return checkpointing;
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), checkpointing.every);
  TRAIN_CHECK(error == std::errc{} && end == text.data() + text.size() && checkpointing.every > 0,
              "memory.activation_checkpointing is \"{}\"", text);
  return checkpointing;
}

Offload offload_of(const configs::MemorySection& section) {
  if (section.offload == "none") {
    return Offload::nothing;
  }
  return section.offload == "optimizer" ? Offload::optimizer : Offload::parameters;
}

bool makes_weights(const configs::MemorySection& section) { return section.bf16_weights == "made"; }

}  // namespace train::engine
