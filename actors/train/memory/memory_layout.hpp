#pragma once

#include "actors/cluster/nodes/node_position.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/state/state_rows.hpp"

// Room for the state of a node's ranks, as snapshots in memory have it.
namespace train::actors {

/// Whose snapshots they are.
[[nodiscard]] engine::RankSpan ranks_of(const checkpoint::MemorySnapshots::Layout& layout);

/// What each rank of the node has to have room for.
[[nodiscard]] checkpoint::MemorySnapshots::Layout memory_layout(const engine::RankOptions& options,
                                                                const NodePosition& position);

}  // namespace train::actors
