#include "engine/rank/exec/passes/compared_outputs.hpp"

#include "engine/objective/registry.hpp"

namespace train::engine {

ComparedOutputs::ComparedOutputs(const RankPlan& rank, const LaneWork& work) {
  if (rank.pass(work.pass).compared != Compared::layer_outputs) {
    return;
  }
  for (std::size_t unit = 0; unit < rank.unit_count(); ++unit) {
    if (rank.trains(unit, work.step)) {
      units_.push_back(unit);
    }
  }
}

std::size_t ComparedOutputs::most(const RankOptions& options) {
  const auto objective = make_objective(options.objective);
  const std::vector<Pass> passes = objective->passes(0);
  if (std::none_of(passes.begin(), passes.end(),
                   [](const Pass& pass) { return pass.compared == Compared::layer_outputs; })) {
    return 0;
  }
  // A later step trains no fewer: one layer, or those of all earlier phases besides.
  std::size_t count = 0;
  for (std::size_t layer = 0; layer < options.model.layers.size(); ++layer) {
    count +=
        objective->schedule()->trains(static_cast<std::int64_t>(layer), options.total_steps - 1)
            ? 1
            : 0;
  }
  return count;
}

}  // namespace train::engine
