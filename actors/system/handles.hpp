#pragma once

#include <caf/actor.hpp>
#include <caf/typed_actor.hpp>
#include <string>
#include <utility>
#include <vector>

// Typed handle of every actor: its messages, which are only declared here; a handler includes the
// message's header.
namespace train::run {

struct Command;
struct ShardWritten;
struct StepFinished;
struct EvaluationFinished;
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

struct WriteSnapshot;
struct CommandFinished;
struct CauseTimeout;
struct DrainTimeout;
struct ShardOrder;
struct ReleaseStaging;
struct ShardDone;
struct SaveWorkDone;
struct JournalWritten;
struct CheckpointLocal;
struct SaveFinished;
struct CheckpointSkipped;
struct NonfiniteFound;
struct RankStopped;
struct ReportFailed;
struct StopRequested;
struct NodesReturned;
struct PrepareLanes;
struct LaneReady;
struct ConnectBatch;
struct BatchSlotFree;
struct ForwardLane;
struct BackwardLane;
struct LaneEnqueued;
struct LaneFinished;
struct GradientReady;
struct UpdateParameters;
struct UpdateEnqueued;
struct RunEvaluation;
struct EvaluationEnqueued;
struct CopyState;
struct CopyEnqueued;
struct StateCopied;
struct DrainSnapshots;
struct SnapshotsDrained;
struct ReduceWithoutLanes;
struct GradientBroadcast;
struct GathersFinished;
struct WorkFailed;
struct OperationPacked;
struct OperationUnpacked;
struct BytesMoved;
struct AcquireWeights;
struct WeightsAcquired;
struct AcquireGradientBuffer;
struct GradientBufferAcquired;
struct VisitEnqueued;
struct GradientPacked;
struct AllGatherWeights;
struct WeightsFinalized;
struct ConnectCollective;
struct ConnectBuffers;
struct RequestCollective;
struct CollectiveFinished;
struct ConnectConductor;
struct ConnectRank;
struct ConnectLayer;
struct ConnectEvaluator;
struct ConnectOptimizer;
struct ConnectSnapshot;
struct ConnectIndex;
struct ConnectReporter;
struct ReportDrained;
struct CloseReport;
struct CheckStalls;
struct ObservationTaken;
struct RankLost;
struct LauncherLost;
struct StatusWritten;

template <class... Messages>
using Accepts = caf::typed_actor<caf::reacts_to<Messages>...>;

using ConductorActor =
    Accepts<ConnectConductor, CommandFinished, StepFinished, EvaluationFinished, CheckpointWritten,
            CheckpointLocal, CheckpointFailed, SaveFinished, NonfiniteFound, RankStopped,
            RankFailed, LauncherLost, CauseTimeout, DrainTimeout, ReportFailed, StopRequested,
            NodesReturned, ReportDrained>;

using RankActor =
    Accepts<ConnectRank, Command, LaneReady, LaneEnqueued, LaneFinished, GradientReady,
            GradientBroadcast, GathersFinished, UpdateEnqueued, EvaluationEnqueued, CopyEnqueued,
            WriteSnapshot, ShardOrder, SnapshotsDrained, WorkFailed>;

/// Receives each command that its rank begins.
using CommandFollower = Accepts<Command>;

using BatchActor = Accepts<ConnectBatch, PrepareLanes, BatchSlotFree>;

using LayerActor = Accepts<ConnectLayer, ForwardLane, BackwardLane, ReduceWithoutLanes>;

using OptimizerActor = Accepts<ConnectOptimizer, UpdateParameters>;

using EvaluatorActor =
    Accepts<ConnectEvaluator, RunEvaluation, LaneReady, LaneEnqueued, LaneFinished>;

using SnapshotActor =
    Accepts<ConnectSnapshot, CopyState, StateCopied, WriteSnapshot, ShardOrder, DrainSnapshots,
            ShardWritten, ShardDone, CheckpointFailed, ReleaseStaging>;

/// Answers a request once the operation's turn has come and its data has arrived.
using CollectiveActor =
    caf::typed_actor<caf::reacts_to<ConnectCollective>, caf::reacts_to<Command>,
                     caf::replies_to<RequestCollective>::with<CollectiveFinished>,
                     caf::reacts_to<OperationPacked>, caf::reacts_to<OperationUnpacked>,
                     caf::reacts_to<BytesMoved>>;

/// Answers a reservation when it begins.
using BuffersActor =
    caf::typed_actor<caf::reacts_to<ConnectBuffers>, caf::reacts_to<Command>,
                     caf::reacts_to<WeightsFinalized>,
                     caf::replies_to<AcquireWeights>::with<WeightsAcquired>,
                     caf::replies_to<AcquireGradientBuffer>::with<GradientBufferAcquired>,
                     caf::reacts_to<VisitEnqueued>, caf::reacts_to<GradientPacked>,
                     caf::reacts_to<AllGatherWeights>>;

/// Carries a save from the first shard to its end; keeps the index of the run.
using IndexActor =
    Accepts<ConnectIndex, WriteSnapshot, ShardWritten, ShardDone, CheckpointFailed, SaveWorkDone,
            CheckpointSkipped, StepFinished, EvaluationFinished, JournalWritten>;

/// Receives the events of a run. Answers CloseReport, once its remaining work is done, by
/// ReportDrained under its own identity; the end of the run waits for that.
using RunListener = Accepts<StepFinished, EvaluationFinished, CheckpointWritten, CheckpointFailed,
                            CheckpointSkipped, StopRequested, CloseReport>;

/// Listener with its name in the text of a failure.
using NamedListener = std::pair<std::string, RunListener>;

using ReporterActor =
    Accepts<ConnectReporter, ReportFailed, StepFinished, EvaluationFinished, CheckpointWritten,
            CheckpointFailed, CheckpointSkipped, StopRequested, CloseReport>;

/// Reports the rank's progress to the observer; one per rank.
using WatchdogActor = Accepts<CheckStalls>;

/// Stores the last report of every rank.
using ObserverActor = caf::typed_actor<caf::replies_to<RankObserved>::with<ObservationTaken>,
                                       caf::reacts_to<CheckStalls>, caf::reacts_to<RankLost>,
                                       caf::reacts_to<StatusWritten>>;

/// Actors with their names in the text of a failure and in the watchdog's report.
using NamedActors = std::vector<std::pair<std::string, caf::actor>>;

}  // namespace train::actors
