#pragma once

#include <cstdint>

#include "actors/train/rank_runtime.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Writes the rank's share of its node's state after `step` steps to the node's memory, as
/// MemorySnapshots::write() does. Blocks. REQUIRES: the engine's work is done.
void write_to_memory(const engine::RankEngine& engine, std::int64_t rank, std::int64_t step,
                     const checkpoint::MemorySnapshots& snapshots);

/// If one is due after `step` steps, enqueues the rank's snapshot in memory on the copy stream;
/// `copied`, which the next update waits for, is then the event of its being sealed (and of all
/// copies before it). A state that is not finite is left out, and the snapshot before it stays.
/// Does not block. REQUIRES: all work of earlier steps is on the compute stream, and none of an
/// update after `step` steps.
void save_memory_snapshot(const RankRuntime& rank, std::int64_t step, kernels::Event& copied);

}  // namespace train::actors
