#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/handles.hpp"
#include "actors/messages/event_messages.hpp"
#include "engine/base/result.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Where a checkpoint went and how large it is.
struct WrittenCheckpoint {
  std::string directory;
  std::uint64_t size_bytes = 0;
};

/// What the index actor does to the disk. All block, and run on its stream.
struct IndexWork {
  /// Makes a checkpoint of the shards of all ranks, sorted by rank.
  std::function<Result<WrittenCheckpoint>(std::int64_t step, const std::vector<ShardWritten>&)>
      publish;
  /// Records a published checkpoint and retires old ones.
  std::function<Status(std::int64_t step)> record;
  /// Removes what ranks have written of a checkpoint that will never be whole.
  std::function<void(std::int64_t step)> discard;
};

/// Publishes checkpoints; sole owner of the RocksDB index of the run (through `work`).
///
///   ShardWritten, CheckpointFailed or CheckpointSkipped of every rank -> all written: published,
///   recorded, old checkpoints retired; CheckpointWritten to the conductor. Else what there is of
///   it is removed; the first failure, or the skip, goes to the conductor. If only the record
///   fails: the checkpoint stands (it is adopted at the next start), the conductor gets
///   CheckpointFailed. Then CheckpointIndexed to every rank: its staging is free.
[[nodiscard]] IndexActor spawn_index(caf::actor_system& system,
                                     std::shared_ptr<kernels::Stream> disk, const IndexWork& work);

}  // namespace train::actors
