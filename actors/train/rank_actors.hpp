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
#include "actors/train/rank_runtime.hpp"
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

/// Reads the tokens of lanes, in the order of commands and lanes, as slots become free.
///
///   PrepareLanes -> LaneReady for each lane, to the rank (training, search) or the evaluator.
///   BatchSlotFree -> the slot may be filled again: the credits that bound the queue.
/// Reading happens on the input stream. Data that cannot be used (a token outside the vocabulary)
/// is WorkFailed to the rank, with the user's exit code.
[[nodiscard]] BatchActor spawn_batch(caf::actor_system& system, const RankContext& context);

/// One sharding unit (embedding, block or head): puts its kernels on the compute stream, lane by
/// lane, and passes the lane on; keeps the sum of its gradients over lanes.
///
///   ForwardLane -> kernels, ForwardLane to the next unit. At the head: a training lane turns round
///     (BackwardLane to the unit before), an evaluation lane ends (LaneEnqueued to the evaluator).
///   BackwardLane -> kernels, BackwardLane to the unit before; at the embedding LaneEnqueued to the
///     rank. After the last lane of a step: the unit's reduce collective, then GradientReady.
/// Dies of: a broken invariant or a device error while enqueuing; the rank is told which unit and
/// step.
[[nodiscard]] LayerActor spawn_layer(caf::actor_system& system, const RankContext& context,
                                     std::size_t unit);

/// Lends what layers share: gathered weights, gradient buffers. Starts gathers in the order of the
/// schedule (BufferReservations), refreshes weights after an update, answers reservations.
///
///   Command -> (WeightsFinalized: the stream has run what was before) gathers are requested;
///   AcquireWeights -> answered when the weights are there, AcquireGradientBuffer -> when the
///   gradient buffer may be written; VisitEnqueued, GradientPacked -> reservations end, further
///   gathers start; AllGatherWeights -> one all-gather per group is requested; later reservations
///   of it wait for that. GathersFinished goes to the rank when the last gather of a training step
///   has ended.
/// Commands are taken one after the other. Credits: gather_credits, prefetch, gradient buffers
/// (EX-4).
[[nodiscard]] BuffersActor spawn_buffers(caf::actor_system& system, const RankContext& context);

/// The ordered channels of a rank (EX-2): a request is answered when it was its turn and its data
/// has moved; one that comes early is parked. A request that no command expects ends the actor with
/// a text that names both sides.
[[nodiscard]] CollectiveActor spawn_collective(caf::actor_system& system,
                                               const RankContext& context);

/// Drives the evaluation lanes down the chain of layer shards.
///
///   RunEvaluation -> PrepareLanes to the batch actor; LaneReady -> ForwardLane to the first layer,
///   as credits allow; when all lanes are on the stream: EvaluationEnqueued to the rank.
/// Dies of: a broken invariant.
[[nodiscard]] EvaluatorActor spawn_evaluator(caf::actor_system& system, const RankContext& context);

/// One optimizer group (decay or no-decay): UpdateParameters puts the group's fused update on the
/// compute stream and answers the rank with UpdateEnqueued.
/// Dies of: a broken invariant while enqueuing.
[[nodiscard]] OptimizerActor spawn_optimizer(caf::actor_system& system, const RankContext& context,
                                             engine::ParameterGroup group);

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
