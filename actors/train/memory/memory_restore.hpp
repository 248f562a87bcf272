#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/messages/cluster_messages.hpp"
#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/collective/collective.hpp"
#include "engine/rank/rank_engine.hpp"

namespace train::actors {

using SharedSnapshots = std::shared_ptr<const checkpoint::MemorySnapshots>;

/// Where a rank finds the state to resume from in memory.
struct MemoryStart {
  MemoryOrigin origin;
  std::vector<SharedSnapshots> here;  ///< Those that its own node has.
};

/// Fills what the engine's rank keeps from the snapshots of all nodes. A collective: every rank of
/// the run calls it with the same origin, and they send each other what a node lacks. Who sends
/// what follows from the origin and the plan, on every rank alike. `transport`: none, for one rank
/// that has everything here. Blocks. Errors (failure): a snapshot is missing, or of another plan;
/// a rank is lost.
[[nodiscard]] Status restore_from_memory(const MemoryStart& start, engine::RankEngine& engine,
                                         engine::Collectives* transport, std::uint32_t generation);

}  // namespace train::actors
