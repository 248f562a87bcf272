#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "actors/handles.hpp"
#include "actors/rank_runtime.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/base/result.hpp"
#include "engine/state_view.hpp"

namespace train::actors {

/// Copies of the rank's state that may be on their way to the disk at once.
inline constexpr std::size_t kStagingBuffers = 2;

/// Where a checkpoint went and how large it is.
struct WrittenCheckpoint {
  std::string directory;
  std::uint64_t size_bytes = 0;
};

/// Makes a staged state durable. Blocking; runs on the disk stream.
using WriteCheckpoint = std::function<Result<WrittenCheckpoint>(
    std::int64_t step, std::span<const engine::StateView> state)>;

/// Copies the rank's state into staging buffers and has it written while training goes on.
///
///   CopyState -> (a free staging buffer) copy on the copy stream, CopyEnqueued to the rank with
///   the
///     event that the next update waits for; (none) the command waits: two buffers are the credits.
///   StateCopied -> written on the disk stream, one at a time. If a newer copy is complete before
///   an
///     older one began to be written, the older is skipped (CheckpointSkipped), never the newest.
///   A poisoned state (loss or norm not finite) is dropped, never written; it replaces nothing.
///   CheckpointWritten / CheckpointFailed come back from the disk stream; the index confirms with
///   CheckpointIndexed. DrainSnapshots -> SnapshotsDrained when nothing is under way.
/// Dies with the index actor (linked), so that the rank hears of it.
[[nodiscard]] SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                                           const WriteCheckpoint& write);

}  // namespace train::actors
