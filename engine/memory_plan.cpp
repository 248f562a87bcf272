#include "engine/memory_plan.hpp"

#include "engine/gradient_norm.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"

namespace train::engine {

MemoryPlan plan_memory(const ModelShape& shape, const configs::BatchSection& batch,
                       std::int64_t seq_len) {
  MemoryPlan plan;
  const auto lanes = static_cast<std::size_t>(batch.lanes);
  const auto tokens = static_cast<std::size_t>(batch.micro_batch * seq_len) * lanes;
  plan.buffers_bytes = 2 * tokens * sizeof(std::int32_t) + lanes * sizeof(kernels::LossSums);
  for (const UnitParameters& unit : describe_units(shape)) {
    const std::size_t flat = static_cast<std::size_t>(unit.element_count) * sizeof(float);
    plan.parameters_bytes += flat;
    plan.optimizer_bytes += 2 * flat;
    plan.gradients_bytes += static_cast<std::size_t>(lane_tree_buffers(batch.lanes)) * flat;
    plan.buffers_bytes += squared_norm_bytes(unit);
  }
  plan.activations_bytes =
      planned_activation_bytes(shape, batch.micro_batch, seq_len, /*with_gradient=*/true);
  return plan;
}

}  // namespace train::engine
