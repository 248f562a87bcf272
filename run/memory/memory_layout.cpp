#include "run/memory/memory_layout.hpp"

#include "base/check.hpp"
#include "engine/optimizer/registry.hpp"

namespace train::run {

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

std::unique_ptr<engine::HostState> memory_rows(const engine::RankEngine& engine,
                                               const checkpoint::MemorySnapshots& snapshots) {
  return std::make_unique<engine::HostState>(
      engine.device(),
      engine::node_views(engine.rank_plan(), engine.state(), ranks_of(snapshots.layout())),
      engine.device().staging);
}

void write_to_memory(engine::HostState& rows, std::int64_t rank, std::int64_t step,
                     const checkpoint::MemorySnapshots& snapshots) {
  rows.load();
  snapshots.write(rank, step, rows.views());
}

}  // namespace train::run
