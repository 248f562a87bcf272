#pragma once

#include <caf/actor.hpp>
#include <caf/typed_actor.hpp>
#include <string>
#include <utility>
#include <vector>

// Typed handle of every actor: its messages. `struct` before a name declares the message; a handler
// includes the message's header.
namespace train::run {

struct Command;
struct ShardWritten;
struct StepFinished;
struct EvaluationFinished;
struct TokensSampled;
struct TextsSampled;
struct CheckpointWritten;
struct CheckpointFailed;
struct RankFailed;
struct RunFinished;
struct RankObserved;

}  // namespace train::run

namespace train::actors {

using run::CheckpointFailed;
using run::CheckpointWritten;
using run::Command;
using run::EvaluationFinished;
using run::RankFailed;
using run::RankObserved;
using run::RunFinished;
using run::ShardWritten;
using run::StepFinished;
using run::TextsSampled;
using run::TokensSampled;

template <class... Messages>
using Accepts = caf::typed_actor<caf::reacts_to<Messages>...>;

using ConductorActor =
    Accepts<struct ConnectConductor, struct CommandFinished, StepFinished, EvaluationFinished,
            TokensSampled, CheckpointWritten, struct CheckpointLocal, CheckpointFailed,
            struct SaveFinished, struct NonfiniteFound, struct RankStopped, RankFailed,
            struct LauncherLost, struct CauseTimeout, struct DrainTimeout, struct ReportFailed,
            struct StopRequested, struct NodesReturned, struct ReportDrained>;

using RankActor =
    Accepts<struct ConnectRank, Command, struct LaneReady, struct LaneEnqueued, struct LaneFinished,
            struct GradientReady, struct GradientBroadcast, struct GathersFinished,
            struct UpdateEnqueued, struct EvaluationEnqueued, struct CopyEnqueued,
            struct WriteSnapshot, struct ShardOrder, struct SnapshotsDrained, struct WorkFailed>;

/// Receives each command that its rank begins.
using CommandFollower = Accepts<Command>;

using BatchActor = Accepts<struct ConnectBatch, struct PrepareLanes, struct BatchSlotFree>;

using LayerActor = Accepts<struct ConnectLayer, struct ForwardLane, struct BackwardLane,
                           struct ReduceWithoutLanes>;

using OptimizerActor = Accepts<struct ConnectOptimizer, struct UpdateParameters>;

using EvaluatorActor =
    Accepts<struct ConnectEvaluator, struct RunEvaluation, LaneReady, LaneEnqueued, LaneFinished>;

using SnapshotActor = Accepts<struct ConnectSnapshot, struct CopyState, struct StateCopied,
                              WriteSnapshot, ShardOrder, struct DrainSnapshots, ShardWritten,
                              struct ShardDone, CheckpointFailed, struct ReleaseStaging>;

/// Answers a request once the operation's turn has come and its data has arrived.
using CollectiveActor =
    caf::typed_actor<caf::reacts_to<struct ConnectCollective>, caf::reacts_to<Command>,
                     caf::replies_to<struct RequestCollective>::with<struct CollectiveFinished>,
                     caf::reacts_to<struct OperationPacked>,
                     caf::reacts_to<struct OperationUnpacked>, caf::reacts_to<struct BytesMoved>>;

/// Answers a reservation when it begins.
using BuffersActor = caf::typed_actor<
    caf::reacts_to<struct ConnectBuffers>, caf::reacts_to<Command>,
    caf::reacts_to<struct WeightsFinalized>,
    caf::replies_to<struct AcquireWeights>::with<struct WeightsAcquired>,
    caf::replies_to<struct AcquireGradientBuffer>::with<struct GradientBufferAcquired>,
    caf::reacts_to<struct VisitEnqueued>, caf::reacts_to<struct GradientPacked>,
    caf::reacts_to<struct AllGatherWeights>>;

/// Carries a save from the first shard to its end; keeps the index of the run.
using IndexActor = Accepts<struct ConnectIndex, WriteSnapshot, ShardWritten, ShardDone,
                           CheckpointFailed, struct SaveWorkDone, struct CheckpointSkipped,
                           StepFinished, EvaluationFinished, struct JournalWritten>;

/// Receives the events of a run. Answers CloseReport, once its remaining work is done, by
/// ReportDrained under its own identity; the end of the run waits for that.
using RunListener = Accepts<StepFinished, EvaluationFinished, TextsSampled, CheckpointWritten,
                            CheckpointFailed, CheckpointSkipped, StopRequested, struct CloseReport>;

/// Listener with its name in the text of a failure.
using NamedListener = std::pair<std::string, RunListener>;

using ReporterActor =
    Accepts<struct ConnectReporter, ReportFailed, StepFinished, EvaluationFinished, TextsSampled,
            CheckpointWritten, CheckpointFailed, CheckpointSkipped, StopRequested, CloseReport>;

/// Reports the rank's progress to the observer; one per rank.
using WatchdogActor = Accepts<struct CheckStalls>;

/// Stores the last report of every rank.
using ObserverActor = caf::typed_actor<caf::replies_to<RankObserved>::with<struct ObservationTaken>,
                                       caf::reacts_to<CheckStalls>, caf::reacts_to<struct RankLost>,
                                       caf::reacts_to<struct StatusWritten>>;

/// Actors with their names in the text of a failure and in the watchdog's report.
using NamedActors = std::vector<std::pair<std::string, caf::actor>>;

}  // namespace train::actors
