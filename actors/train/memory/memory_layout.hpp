#pragma once

#include "actors/cluster/nodes/node_position.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/state/state_rows.hpp"

// Memory layout of the snapshots of a node's ranks.
namespace train::actors {

/// Ranks that the snapshots belong to.
[[nodiscard]] engine::RankSpan ranks_of(const checkpoint::MemorySnapshots::Layout& layout);

/// Layout of the memory for each rank of the node.
[[nodiscard]] checkpoint::MemorySnapshots::Layout memory_layout(const engine::RankOptions& options,
                                                                const NodePosition& position);

}  // namespace train::actors
