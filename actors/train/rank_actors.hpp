#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "actors/messages/watch_messages.hpp"
#include "actors/system/handles.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "engine/parameter.hpp"
#include "engine/state_view.hpp"
#include "run/program/run_program.hpp"

namespace train::actors {

/// Root supervisor of one rank; executes all commands in order (EX-1).
///
///   idle --train_step--> lanes --last lane enqueued, all GradientReady--> loss and norm (control
///        collective) --GathersFinished--> updates --both UpdateEnqueued--> idle (+ StepFinished
///        when the stream gets there)
///   idle --evaluate--> evaluator drives --EvaluationEnqueued--> control collective --> idle
///   idle --snapshot--> snapshot copies --CopyEnqueued--> idle
///   idle --find_nonfinite, find_nonfinite_first--> lanes --> control collective --> idle (+
///   NonfiniteFound) idle --stop--> snapshots drain --> RankStopped
/// A command ends as soon as its work is enqueued, so the next one is enqueued while the device
/// still computes. Commands that arrive meanwhile wait in order.
/// Supervision: monitors every part; the end of a part or a failing stream ends the rank:
/// RankFailed to the conductor with part, layer, step and text, then all parts are stopped.
/// `digest_interval`: steps between digests of the weights, besides the last step (0: last only).
struct RankReporting {
  std::int64_t digest_interval = 0;
};
[[nodiscard]] RankActor spawn_rank(caf::actor_system& system, const RankContext& context,
                                   const RankReporting& reporting);

/// Ordered channels of a rank (EX-2): a request is answered once its turn has come and its data has
/// arrived; an early request is parked. A request that no command expects ends the actor with a
/// text that names both sides.
[[nodiscard]] CollectiveActor spawn_collective(caf::actor_system& system,
                                               const RankContext& context);

/// Copies of the rank's state in memory, at most.
inline constexpr std::size_t kStagingBuffers = run::kStateCopies;

/// Makes the rank's rows durable in the checkpoint under construction; returns the shard's record
/// (ShardWritten::record). Blocking; runs on the disk stream.
using WriteShard =
    std::function<Result<std::string>(std::int64_t step, std::span<const engine::StateView> state)>;

/// Disk work of a rank for a save; all of it blocks and runs on the disk stream. With a single
/// location only `write` is needed (see ShardTask).
struct ShardWork {
  WriteShard write;
  std::function<Status(std::int64_t step, const std::string& manifest)> seal = {};
  std::function<Status(std::int64_t step)> send = {};
  std::function<Status(std::int64_t step)> finalize = {};
  std::function<Status(std::int64_t step)> discard = {};
};

/// Copies the rank's state into staging memory, and writes it while training continues.
///
///   CopyState -> copy on the copy stream, CopyEnqueued to the rank with the event that the next
///     update waits for. It replaces the copy that CopyState names, or takes a free buffer: the
///     conductor ensures that there is one (SaveSchedule), so no command ever waits here.
///   StateCopied and granted (write_now, or WriteSnapshot) -> written on the disk stream; the
///     buffer is free as soon as the bytes are durable. Between saves the system may take staging
///     memory when it needs it, and gets all of it if none follows within a minute.
///   A copy that a full disk kept unwritten stays in its buffer until the index orders another
///     write (ShardTask::write) or discards it (discard).
///   A non-finite state (loss or norm not finite) is dropped, never written; it replaces nothing.
///   ShardOrder -> its task on the disk stream, then ShardDone to the index.
///   ShardWritten, ShardDone and CheckpointFailed come back from the disk stream and go on to the
///   index. DrainSnapshots -> SnapshotsDrained when nothing is in memory or on the disk stream.
/// Dies with the index actor (monitored), which ends the rank.
[[nodiscard]] SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                                           const ShardWork& work);

/// Period of the ranks' reports.
inline constexpr std::chrono::seconds kWatchPeriod{1};

/// Reports the rank's progress to `observer` once per kWatchPeriod: the waits of its actors, the
/// progress of its channels, the work of its streams, the credits in use, the lengths of mailboxes.
/// Sends no report before the last one is answered (EX-4). Ends nothing, and waits for no actor.
///
///   CheckStalls (itself) -> RankObserved to the observer -> ObservationTaken
/// `parts`: the rank's actors, for the lengths of their mailboxes; they run their handlers on the
/// thread of this actor.
[[nodiscard]] WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                                           ObserverActor observer, NamedActors parts);

/// Progress of the rank, as its boards and streams show it at `now_ns`.
[[nodiscard]] RankObserved observe_rank(const RankRuntime& runtime, std::int64_t now_ns);

}  // namespace train::actors
