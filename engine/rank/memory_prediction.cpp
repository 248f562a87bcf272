#include "engine/rank/memory_prediction.hpp"

#include "base/check.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/memory_options.hpp"
#include "engine/rank/rank_layout.hpp"

namespace train::engine {

MemoryPlan plan_memory(const RankOptions& options) {
  const Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  const RankLayout layout(*plan, options);
  MemoryPlan memory = layout.memory();
  memory.activations_bytes = planned_activation_bytes(
      options.shape, options.batch.micro_batch, options.seq_len,
      /*with_gradient=*/true, layout.activations(checkpointing_of(options.memory)));
  return memory;
}

}  // namespace train::engine
