// Plans from options, with the errors a user can mend.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/rank/rank_options.hpp"

namespace train::engine {

Result<ShardPlan> plan_of(const RankOptions& options) {
  std::vector<UnitParameters> units = describe_units(options.shape);
  std::vector<std::string> whole =
      whole_parameters(*make_optimizer(options.optimizer, options.total_steps), units);
  whole.insert(whole.end(), options.whole_parameters.begin(), options.whole_parameters.end());
  return ShardPlan::make({.parallel = options.parallel,
                          .precision = options.precision,
                          .units = std::move(units),
                          .train_lanes = options.batch.lanes,
                          .eval_lanes = options.eval_lanes,
                          .tied = options.shape.tie_embeddings,
                          .whole_parameters = std::move(whole)});
}

Status check_freeze(const RankOptions& options) {
  const std::vector<UnitParameters> units = describe_units(options.shape);
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
  return {};
}

}  // namespace train::engine
