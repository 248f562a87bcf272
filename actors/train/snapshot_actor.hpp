#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"
#include "base/result.hpp"
#include "engine/state_view.hpp"

namespace train::actors {

/// Copies of the rank's state that may be in memory at once: one being written, one that waits.
inline constexpr std::size_t kStagingBuffers = 2;

/// Makes the rank's rows durable in the checkpoint under construction; returns their record
/// (ShardWritten::record). Blocking; runs on the disk stream.
using WriteShard =
    std::function<Result<std::string>(std::int64_t step, std::span<const engine::StateView> state)>;

/// What a rank does to its disks for a save; all of it blocks, and runs on the disk stream. All but
/// `write` is needed only where there are two places (ShardTask says what each is for).
struct ShardWork {
  WriteShard write;
  std::function<Status(std::int64_t step, const std::string& manifest)> seal = {};
  std::function<Status(std::int64_t step)> send = {};
  std::function<Status(std::int64_t step)> finalize = {};
  std::function<Status(std::int64_t step)> discard = {};
};

/// Copies the rank's state into staging memory and has it written while training goes on.
///
///   CopyState -> copy on the copy stream, CopyEnqueued to the rank with the event that the next
///     update waits for. It replaces the copy that CopyState names, or takes a free buffer: the
///     conductor sees to it that there is one (SaveSchedule), so no command ever waits here.
///   StateCopied and granted (write_now, or WriteSnapshot) -> written on the disk stream; the
///     buffer is free as soon as the bytes are durable. Between saves the system may take staging
///     memory when it needs it, and gets all of it if none follows within a minute.
///   A copy that a full disk kept from being written stays in its buffer until the index orders it
///   to
///     be written again (ShardTask::write), or gives it up (discard).
///   A non-finite state (loss or norm not finite) is dropped, never written; it replaces nothing.
///   ShardOrder -> its task on the disk stream, then ShardDone to the index.
///   ShardWritten, ShardDone and CheckpointFailed come back from the disk stream and go to the
///   index.
///   DrainSnapshots -> SnapshotsDrained when nothing is in memory or on the disk stream.
/// Dies with the index actor (monitored), so that the rank hears of it.
[[nodiscard]] SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                                           const ShardWork& work);

}  // namespace train::actors
