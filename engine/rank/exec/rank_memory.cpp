#include "engine/rank/exec/rank_memory.hpp"

#include "base/check.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/exec/log_probs/lane_weighting.hpp"
#include "engine/rank/exec/log_probs/reference_log_probs.hpp"
#include "engine/rank/exec/passes/frozen_inputs.hpp"
#include "engine/rank/exec/totals/source_sums.hpp"
#include "engine/rank/state/reference_weights.hpp"

namespace train::engine {

MemoryPlan plan_beside_activations(const RankLayout& layout, const ShardPlan& plan,
                                   const RankOptions& options) {
  MemoryPlan memory = layout.memory();
  const auto objective = make_objective(options.objective);
  memory.buffers_bytes += LaneWeighting::planned_bytes(options, *objective) +
                          ReferenceLogProbs::planned_bytes(options, *objective) +
                          SourceSums::planned_bytes(options);
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    if (copies_reference(options, plan.groups()[index])) {
      memory.reference_bytes += ReferenceWeights::planned_bytes(layout, index);
    }
  }
  memory.reference_bytes += FrozenInputs::planned_bytes(layout, plan, options);
  return memory;
}

MemoryPlan plan_memory(const RankOptions& options) {
  const Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  const RankLayout layout(*plan, options);
  MemoryPlan memory = plan_beside_activations(layout, *plan, options);
  memory.activations_bytes = plan_activations(layout, options);
  return memory;
}

std::size_t plan_activations(const RankLayout& layout, const RankOptions& options) {
  return planned_activation_bytes(
      trained_model(options), options.batch.micro_batch, options.seq_len,
      /*with_gradient=*/true, layout.activations(checkpointing_of(options.memory)));
}

RankOptions largest_phase(const RankOptions& options) {
  RankOptions largest = options;
  if (!keeps_state_by_phase(options)) {
    return largest;
  }
  RankOptions phase = options;
  std::size_t most = 0;
  for (phase.phase_step = 0; phase.phase_step < options.total_steps;
       phase.phase_step = last_step_of(phase)) {
    if (const std::size_t bytes = plan_memory(phase).total_bytes(); bytes > most) {
      most = bytes;
      largest = phase;
    }
  }
  largest.model = trained_model(largest);
  return largest;
}

}  // namespace train::engine
