#pragma once

#include <caf/fwd.hpp>
#include <functional>

#include "actors/handles.hpp"
#include "actors/rank_runtime.hpp"
#include "engine/base/result.hpp"

namespace train::actors {

/// Records a published checkpoint and retires old ones. Blocking; runs on the disk stream.
using RecordCheckpoint = std::function<Status(std::int64_t step)>;

/// Sole owner of the RocksDB index of the run (through `record`).
///
///   CheckpointWritten -> recorded on the disk stream, old checkpoints retired; then
///   CheckpointWritten to the conductor and CheckpointIndexed to the snapshot actor. If the record
///   fails: the checkpoint stands (it is adopted at the next start), the conductor gets
///   CheckpointFailed with the reason.
[[nodiscard]] IndexActor spawn_index(caf::actor_system& system, const RankContext& context,
                                     const RecordCheckpoint& record);

}  // namespace train::actors
