#include "engine/memory_plan.hpp"

#include "engine/gradient_norm.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"

namespace train::engine {

MemoryPlan plan_memory(const RankEngine::Options& options) {
  MemoryPlan plan;
  const auto lanes = static_cast<std::size_t>(options.batch.lanes);
  const auto sums = lanes + static_cast<std::size_t>(options.eval_lanes);
  const auto slot_tokens =
      static_cast<std::size_t>(options.batch.micro_batch * options.seq_len * options.lane_slots);
  plan.buffers_bytes = 2 * slot_tokens * sizeof(std::int32_t) + sums * sizeof(kernels::LossSums);
  for (const UnitParameters& unit : describe_units(options.shape)) {
    const std::size_t flat = static_cast<std::size_t>(unit.element_count) * sizeof(float);
    plan.parameters_bytes += flat;
    plan.optimizer_bytes += 2 * flat;
    plan.gradients_bytes += static_cast<std::size_t>(lane_tree_buffers(options.batch.lanes)) * flat;
    plan.buffers_bytes += squared_norm_bytes(unit);
  }
  plan.activations_bytes = planned_activation_bytes(options.shape, options.batch.micro_batch,
                                                    options.seq_len, /*with_gradient=*/true);
  return plan;
}

}  // namespace train::engine
