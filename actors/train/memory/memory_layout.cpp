#include "actors/train/memory/memory_layout.hpp"

#include "base/check.hpp"
#include "engine/optimizer/registry.hpp"

namespace train::actors {

using checkpoint::MemorySnapshots;

engine::RankSpan ranks_of(const MemorySnapshots::Layout& layout) {
  return {.first = layout.first_rank,
          .end = layout.first_rank + static_cast<std::int64_t>(layout.shard_bytes.size())};
}

MemorySnapshots::Layout memory_layout(const engine::RankOptions& options,
                                      const NodePosition& position) {
  const auto plan = engine::plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);  // plan_run() has already made it.
  const auto optimizer = engine::optimizer_of(options);
  const auto [first, end] = position.ranks(plan->ranks());
  MemorySnapshots::Layout layout{.ranks = plan->ranks(),
                                 .plan_digest = plan->digest(),
                                 .first_rank = first,
                                 .shard_bytes = {}};
  for (std::int64_t rank = first; rank < end; ++rank) {
    layout.shard_bytes.push_back(engine::node_bytes(*plan, *optimizer, rank, {first, end}));
  }
  return layout;
}

}  // namespace train::actors
