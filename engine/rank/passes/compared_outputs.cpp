#include "engine/rank/passes/compared_outputs.hpp"

#include "engine/objective/registry.hpp"

namespace train::engine {

ComparedOutputs::ComparedOutputs(const RankPlan& rank, const LaneWork& work) {
  const StepProgram* program = rank.objective().program();
  const bool frozen = work.kind == CommandKind::reference;
  if (program == nullptr || (!frozen && !has_backward(work.kind))) {
    return;
  }
  const StepProgram::FrozenPass pass =
      frozen ? StepProgram::frozen_pass(work.step)
             : StepProgram::FrozenPass{.step = work.step, .pass = StepProgram::pass_of(work.kind)};
  for (std::size_t unit = 0; program->compares_outputs(pass.pass) && unit < rank.unit_count();
       ++unit) {
    if (rank.trains(unit, pass.step)) {
      units_.push_back(unit);
    }
  }
}

std::size_t ComparedOutputs::most(const RankOptions& options) {
  const auto program = program_of(options.objective);
  if (program == nullptr || !program->compares_outputs(StepProgram::Pass::first)) {
    return 0;
  }
  // A later step trains no fewer: one layer, or those of all earlier phases besides.
  std::size_t count = 0;
  for (std::size_t layer = 0; layer < options.model.layers.size(); ++layer) {
    count += program->trains(static_cast<std::int64_t>(layer), options.total_steps - 1) ? 1 : 0;
  }
  return count;
}

}  // namespace train::engine
