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
struct IndexUpdated;
struct ReportDrained;
struct CloseReport;
struct CheckStalls;

template <class... Messages>
using Accepts = caf::typed_actor<caf::reacts_to<Messages>...>;

using ConductorActor =
    Accepts<ConnectConductor, CommandFinished, StepFinished, EvaluationFinished, CheckpointWritten,
            CheckpointFailed, CheckpointSkipped, NonfiniteFound, RankStopped, RankFailed,
            ReportFailed, StopRequested, IndexUpdated, ReportDrained>;

using RankActor = Accepts<ConnectRank, TrainStep, Evaluate, TakeSnapshot, FindNonfinite, StopRank,
                          LaneReady, LaneEnqueued, LaneFinished, GradientReady, UpdateEnqueued,
                          EvaluationEnqueued, CopyEnqueued, SnapshotsDrained, CollectiveFinished,
                          NonfiniteFound, CommandFinished, WorkFailed>;

using BatchActor = Accepts<PrepareLanes, BatchSlotFree>;

using LayerActor = Accepts<ConnectLayer, ForwardLane, BackwardLane, CollectiveFinished>;

using OptimizerActor = Accepts<UpdateParameters>;

using EvaluatorActor = Accepts<ConnectEvaluator, RunEvaluation, LaneReady, LaneEnqueued,
                               LaneFinished, CollectiveFinished>;

using SnapshotActor =
    Accepts<CopyState, StateCopied, DrainSnapshots, CheckpointWritten, CheckpointFailed>;

using CollectiveActor = Accepts<OpenCommand, RequestCollective>;

using IndexActor = Accepts<CheckpointWritten>;

using ReporterActor = Accepts<StepFinished, EvaluationFinished, CheckpointWritten, CheckpointFailed,
                              CheckpointSkipped, CloseReport>;

using WatchdogActor = Accepts<CheckStalls>;

}  // namespace train::actors
