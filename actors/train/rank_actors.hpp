#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "actors/handles.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "engine/parameter.hpp"
#include "engine/state_view.hpp"

namespace train::actors {

/// Root supervisor of one rank; executes every command, in order (EX-1).
///
///   idle --train_step--> lanes --last lane enqueued, all GradientReady--> loss and norm (control
///        collective) --GathersFinished--> updates --both UpdateEnqueued--> idle (+ StepFinished
///        when the stream gets there)
///   idle --evaluate--> evaluator drives --EvaluationEnqueued--> control collective --> idle
///   idle --snapshot--> snapshot copies --CopyEnqueued--> idle
///   idle --find_nonfinite, find_nonfinite_first--> lanes --> control collective --> idle (+
///   NonfiniteFound) idle --stop--> snapshots drain --> RankStopped
/// A command is left as soon as its work is on the streams, so the next one is enqueued while the
/// device still computes. Commands that arrive meanwhile wait in order.
/// Supervision: monitors every part; a part that dies, or a stream that fails, ends the rank:
/// RankFailed to the conductor with part, layer, step and text, then all parts are stopped.
/// `digest_interval`: a digest of the weights every this many steps and at the last (0: only
/// there).
struct RankReporting {
  std::int64_t digest_interval = 0;
};
[[nodiscard]] RankActor spawn_rank(caf::actor_system& system, const RankContext& context,
                                   const RankReporting& reporting);

/// The ordered channels of a rank (EX-2): a request is answered when it was its turn and its data
/// has moved; one that comes early is parked. A request that no command expects ends the actor with
/// a text that names both sides.
[[nodiscard]] CollectiveActor spawn_collective(caf::actor_system& system,
                                               const RankContext& context);

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
///     to be written again (ShardTask::write), or gives it up (discard).
///   A non-finite state (loss or norm not finite) is dropped, never written; it replaces nothing.
///   ShardOrder -> its task on the disk stream, then ShardDone to the index.
///   ShardWritten, ShardDone and CheckpointFailed come back from the disk stream and go on to the
///   index. DrainSnapshots -> SnapshotsDrained when nothing is in memory or on the disk stream.
/// Dies with the index actor (monitored), so that the rank hears of it.
[[nodiscard]] SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                                           const ShardWork& work);

/// How often a rank says where it is.
inline constexpr std::chrono::seconds kWatchPeriod{1};

/// Tells `observer` once in kWatchPeriod where the rank is: what its actors wait for, how far its
/// channels are, what its streams are in, which credits are held, how many messages wait. Sends
/// nothing while the one before has not been answered (EX-4). Ends nothing, and waits for nobody.
///
///   CheckStalls (itself) -> RankObserved to the observer -> ObservationTaken
/// `parts`: the rank's actors, for the lengths of their mailboxes; they run their handlers on the
/// thread of this actor.
[[nodiscard]] WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                                           ObserverActor observer, NamedActors parts);

/// Where the rank is, as its boards and streams show it at `now_ns`.
[[nodiscard]] RankObserved observe_rank(const RankRuntime& runtime, std::int64_t now_ns);

}  // namespace train::actors
