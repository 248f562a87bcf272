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

/// Makes the rank's rows durable in the checkpoint under construction; returns their record
/// (ShardWritten::record). Blocking; runs on the disk stream.
using WriteShard =
    std::function<Result<std::string>(std::int64_t step, std::span<const engine::StateView> state)>;

/// Copies the rank's state into staging buffers and has it written while training goes on.
///
///   CopyState -> (a free staging buffer) copy on the copy stream, CopyEnqueued to the rank with
///   the
///     event that the next update waits for; (none) the command waits: two buffers are the credits.
///   StateCopied -> written on the disk stream, one at a time. If a newer copy is complete before
///   an
///     older one began to be written, the older is skipped (CheckpointSkipped), never the newest.
///   A poisoned state (loss or norm not finite) is dropped, never written; it replaces nothing.
///   ShardWritten / CheckpointFailed come back from the disk stream and go to the index, which
///   confirms with CheckpointIndexed when all ranks' shards are published, or given up.
///   DrainSnapshots -> SnapshotsDrained when nothing is under way.
/// Dies with the index actor (linked), so that the rank hears of it.
[[nodiscard]] SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                                           const WriteShard& write);

}  // namespace train::actors
