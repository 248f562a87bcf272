#pragma once

#include <caf/actor.hpp>
#include <caf/typed_actor.hpp>

// The typed handle of every actor: what each of them understands. Messages are only declared here;
// who handles one includes its header.
namespace train::actors {

struct TrainStep;
struct Evaluate;
struct TakeSnapshot;
struct FindNonfinite;
struct StopRank;
struct CommandFinished;
struct StepFinished;
struct EvaluationFinished;
struct CheckpointWritten;
struct CheckpointFailed;
struct CheckpointSkipped;
struct NonfiniteFound;
struct RankStopped;
struct RankFailed;
struct ReportFailed;
struct StopRequested;
struct RunFinished;
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
struct WorkFailed;
struct OpenCommand;
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
struct CheckpointIndexed;
struct ReportDrained;
struct CloseReport;
struct CheckStalls;

template <class... Messages>
using Accepts = caf::typed_actor<caf::reacts_to<Messages>...>;

using ConductorActor =
    Accepts<ConnectConductor, CommandFinished, StepFinished, EvaluationFinished, CheckpointWritten,
            CheckpointFailed, CheckpointSkipped, NonfiniteFound, RankStopped, RankFailed,
            ReportFailed, StopRequested, ReportDrained>;

using RankActor = Accepts<ConnectRank, TrainStep, Evaluate, TakeSnapshot, FindNonfinite, StopRank,
                          LaneReady, LaneEnqueued, LaneFinished, GradientReady, UpdateEnqueued,
                          EvaluationEnqueued, CopyEnqueued, SnapshotsDrained, WorkFailed>;

using BatchActor = Accepts<ConnectBatch, PrepareLanes, BatchSlotFree>;

using LayerActor = Accepts<ConnectLayer, ForwardLane, BackwardLane>;

using OptimizerActor = Accepts<ConnectOptimizer, UpdateParameters>;

using EvaluatorActor =
    Accepts<ConnectEvaluator, RunEvaluation, LaneReady, LaneEnqueued, LaneFinished>;

using SnapshotActor = Accepts<ConnectSnapshot, CopyState, StateCopied, DrainSnapshots,
                              CheckpointWritten, CheckpointFailed, CheckpointIndexed>;

/// Answers a request when it was the operation's turn and its data has moved.
using CollectiveActor =
    caf::typed_actor<caf::reacts_to<OpenCommand>,
                     caf::replies_to<RequestCollective>::with<CollectiveFinished>>;

using IndexActor = Accepts<ConnectIndex, CheckpointWritten, CheckpointIndexed>;

using ReporterActor = Accepts<ConnectReporter, ReportFailed, StepFinished, EvaluationFinished,
                              CheckpointWritten, CheckpointFailed, CheckpointSkipped, CloseReport>;

using WatchdogActor = Accepts<CheckStalls>;

}  // namespace train::actors
