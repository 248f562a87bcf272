#pragma once

#include <cstdint>
#include <memory>
#include "run/plan/node_position.hpp"

#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/state/state_rows.hpp"

// Memory layout of the snapshots of a node's ranks.
namespace train::run {

/// Ranks that the snapshots belong to.
[[nodiscard]] engine::RankSpan ranks_of(const checkpoint::MemorySnapshots::Layout& layout);

/// Layout of the memory for each rank of the node.
[[nodiscard]] checkpoint::MemorySnapshots::Layout memory_layout(const engine::RankOptions& options,
                                                                const NodePosition& position);

/// State of the rank in its node's memory, to be loaded for successive snapshots: a device's state
/// is copied through pinned memory, allocated here once. Throws kernels::DeviceError.
[[nodiscard]] std::unique_ptr<engine::HostState> memory_rows(
    const engine::RankEngine& engine, const checkpoint::MemorySnapshots& snapshots);
/// Writes memory_rows() after `step` steps to the node's memory, with MemorySnapshots::write().
/// Blocks. REQUIRES: the engine's work is done.
void write_to_memory(engine::HostState& rows, std::int64_t rank, std::int64_t step,
                     const checkpoint::MemorySnapshots& snapshots);

}  // namespace train::run
