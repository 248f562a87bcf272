#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/collective/collective.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "run/memory/snapshot_places.hpp"

namespace train::run {

using SharedSnapshots = std::shared_ptr<const checkpoint::MemorySnapshots>;

/// Sources in memory of the state to resume from.
struct MemoryStart {
  MemoryOrigin origin;
  std::vector<SharedSnapshots> here;  ///< Snapshots of its own node.
};

/// Restores the state of the engine's rank from the snapshots of all nodes. A collective: every
/// rank of the run calls it with the same origin, and the ranks send each other the pieces that a
/// node lacks. Every rank derives the same transfers from the origin and the plan. `transport`:
/// null for one rank that has all pieces here. Blocks. Errors (failure): a snapshot is missing, or
/// of another plan; a rank is lost.
[[nodiscard]] Status restore_from_memory(const MemoryStart& start, engine::RankEngine& engine,
                                         engine::Collectives* transport, std::uint32_t generation);

}  // namespace train::run
