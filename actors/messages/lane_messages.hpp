#pragma once

#include <cstdint>
#include <string>

#include "engine/command.hpp"
#include "kernels/device/stream.hpp"

#include "actors/messages/fields.hpp"

// Within one rank: lanes on their way through the layers, gradients, updates, snapshots. A lane
// travels as its name (pass, step, lane, slot), never as a tensor.
namespace train::actors {

/// Rank or evaluator -> batch: Read the tokens of all lanes of one command, in order, as slots
/// become free.
struct PrepareLanes {
  engine::PassPlan pass = engine::kTrainStep;
  std::int64_t step = 0;
  std::uint64_t command = 0;
};

/// Input stream -> rank or evaluator: The tokens of a lane are in its slot.
struct LaneReady {
  engine::LaneWork work;
};

/// Rank or evaluator -> batch: The tokens of the slot are no longer needed. This is the batch
/// actor's credit for the next lane.
struct BatchSlotFree {
  std::int32_t slot = 0;
};

/// Rank or evaluator -> first layer -> ... -> head: Enqueue the forward pass of a lane. Each layer
/// passes it on when its own kernels are on the stream.
struct ForwardLane {
  engine::LaneWork work;
};

/// Head -> ... -> first layer: Enqueue the backward pass of a lane. The head begins when the
/// forward pass is on the stream.
struct BackwardLane {
  engine::LaneWork work;
};

/// First layer, in an evaluation the head -> rank or evaluator: Every kernel of the lane is on the
/// stream.
struct LaneEnqueued {
  engine::LaneWork work;
};

/// Compute stream -> rank or evaluator: The last kernel of the lane has run.
struct LaneFinished {
  engine::LaneWork work;
};

/// Rank -> layer: This rank has no lane in the sync. The layer that reduces the group takes part in
/// the reduction without a contribution.
struct ReduceWithoutLanes {
  engine::PassPlan pass = engine::kTrainStep;
  std::int64_t step = 0;
  std::uint64_t command = 0;
  std::int32_t sync = 0;
};

/// Layer -> rank: The gradient of the group is reduced, and its norms are on the stream.
struct GradientReady {
  std::int64_t step = 0;
  std::uint32_t group = 0;
};

/// Layer -> rank: The gradient of the group has been broadcast to the replicas of its rows, so the
/// optimizer may read it. It comes with GradientReady or after it.
struct GradientBroadcast {
  std::int64_t step = 0;
  std::uint32_t group = 0;
};

/// Rank -> optimizer: Loss and norm of the step are on the compute stream: enqueue the update. The
/// update waits, on its stream, for `copied`: the copy of a snapshot that still reads the weights.
struct UpdateParameters {
  std::int64_t step = 0;
  kernels::Event copied;
};

/// Optimizer -> rank: The update is on the compute stream.
struct UpdateEnqueued {
  std::int64_t step = 0;
};

/// Rank -> evaluator: Enqueue the lanes of a pass that has forward passes alone.
struct RunEvaluation {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
  engine::PassPlan pass = engine::kEvaluation;
};

/// Evaluator -> rank: Every kernel of the evaluation is on the stream.
struct EvaluationEnqueued {
  std::uint64_t sequence = 0;
};

/// Rank -> snapshot: Copy the state, as TakeSnapshot says.
struct CopyState {
  std::int64_t step = 0;
  std::int64_t replaces = -1;
  bool write_now = false;
};

/// Snapshot -> rank: The copy is on its stream. The weights may not change before `copied` is
/// reached.
struct CopyEnqueued {
  std::int64_t step = 0;
  kernels::Event copied;
};

/// Copy stream -> snapshot: The copy in a staging buffer is complete, or none was made.
struct StateCopied {
  std::int64_t step = 0;
  std::int32_t staging = 0;
  bool nonfinite = false;  ///< The state is not finite: the buffer is as it was.
  std::string failure;     ///< Out of memory; empty: no failure.
};

/// Rank -> snapshot: The last command has come: answer when saves in progress are finished.
struct DrainSnapshots {};

/// Snapshot -> rank: No state is in its memory any more, and its disk stream is idle.
struct SnapshotsDrained {};

/// Stream or collective -> rank: The first failure of a stream, unusable data, or a peer whose
/// bytes will not come.
struct WorkFailed {
  std::string text;
  std::int32_t exit_code = 1;
  bool consequence = false;  ///< Consequence of another rank's end (RankFailed).
};

}  // namespace train::actors

TRAIN_LOCAL_MESSAGE(train::actors::PrepareLanes)
TRAIN_LOCAL_MESSAGE(train::actors::LaneReady)
TRAIN_LOCAL_MESSAGE(train::actors::BatchSlotFree)
TRAIN_LOCAL_MESSAGE(train::actors::ForwardLane)
TRAIN_LOCAL_MESSAGE(train::actors::BackwardLane)
TRAIN_LOCAL_MESSAGE(train::actors::LaneEnqueued)
TRAIN_LOCAL_MESSAGE(train::actors::LaneFinished)
TRAIN_LOCAL_MESSAGE(train::actors::ReduceWithoutLanes)
TRAIN_LOCAL_MESSAGE(train::actors::GradientReady)
TRAIN_LOCAL_MESSAGE(train::actors::GradientBroadcast)
TRAIN_LOCAL_MESSAGE(train::actors::UpdateParameters)
TRAIN_LOCAL_MESSAGE(train::actors::UpdateEnqueued)
TRAIN_LOCAL_MESSAGE(train::actors::RunEvaluation)
TRAIN_LOCAL_MESSAGE(train::actors::EvaluationEnqueued)
TRAIN_LOCAL_MESSAGE(train::actors::CopyState)
TRAIN_LOCAL_MESSAGE(train::actors::CopyEnqueued)
TRAIN_LOCAL_MESSAGE(train::actors::StateCopied)
TRAIN_LOCAL_MESSAGE(train::actors::DrainSnapshots)
TRAIN_LOCAL_MESSAGE(train::actors::SnapshotsDrained)
TRAIN_LOCAL_MESSAGE(train::actors::WorkFailed)
