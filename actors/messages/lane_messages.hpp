#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <string>

#include "engine/rank/lane_work.hpp"
#include "kernels/device/stream.hpp"

// Inside one rank: lanes on their way through the layer shards, gradients, updates, snapshots.
// All of it local; a lane travels as its name (purpose, step, lane, slot), never as a tensor.
namespace train::actors {

/// Rank or evaluator -> batch: read all lanes of one command, in order, as slots become free.
struct PrepareLanes {
  engine::LanePurpose purpose = engine::LanePurpose::train;
  std::int64_t step = 0;
  std::uint64_t command = 0;
};

/// Batch -> rank or evaluator: the tokens of a lane are in its slot.
struct LaneReady {
  engine::LaneWork work;
};

/// Rank or evaluator -> batch: the slot's tokens are no longer needed (a credit).
struct BatchSlotFree {
  std::int32_t slot = 0;
};

/// Along the chain of layer shards; back along it.
struct ForwardLane {
  engine::LaneWork work;
};
struct BackwardLane {
  engine::LaneWork work;
};

/// End of the chain -> rank or evaluator: every kernel of the lane is on the stream.
struct LaneEnqueued {
  engine::LaneWork work;
};

/// Stream -> rank or evaluator: the last kernel of the lane has run.
struct LaneFinished {
  engine::LaneWork work;
};

/// Rank -> the layer shard that reduces a group: this rank has no lane in the sync, and takes part
/// in its reduction with nothing to add.
struct ReduceWithoutLanes {
  std::int64_t step = 0;
  std::uint64_t command = 0;
  std::int32_t sync = 0;
};

/// Layer shard -> rank: the gradient of the group is reduced and its norms are on the stream.
struct GradientReady {
  std::int64_t step = 0;
  std::uint32_t group = 0;
};
/// Layer shard -> rank: the optimizer may read the gradient (after GradientReady, or with it).
struct GradientSpread {
  std::int64_t step = 0;
  std::uint32_t group = 0;
};

/// Rank -> optimizer group, and back. The update waits, on its stream, for `copied`: a snapshot
/// that still reads the weights.
struct UpdateParameters {
  std::int64_t step = 0;
  kernels::Event copied;
};
struct UpdateEnqueued {
  std::int64_t step = 0;
};

/// Rank -> evaluator, and back when every kernel of the evaluation is on the stream.
struct RunEvaluation {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};
struct EvaluationEnqueued {
  std::uint64_t sequence = 0;
};

/// Rank -> snapshot (as TakeSnapshot), and back when the copy is on its stream (the weights may not
/// change before).
struct CopyState {
  std::int64_t step = 0;
  std::int64_t replaces = -1;
  bool write_now = false;
};
struct CopyEnqueued {
  std::int64_t step = 0;
  kernels::Event copied;
};

/// Stream -> snapshot: the copy in a staging buffer is complete, or none was made.
struct StateCopied {
  std::int64_t step = 0;
  std::int32_t staging = 0;
  bool poisoned = false;  ///< The state is not finite: the buffer is as it was.
  std::string failure;    ///< There was no memory; empty: there was.
};

/// Rank -> snapshot, and back when nothing is in its memory or on its disk stream any more.
struct DrainSnapshots {};
struct SnapshotsDrained {};

/// A stream's first failure, data that cannot be used, or another rank that is lost.
struct WorkFailed {
  std::string text;
  std::int32_t exit_code = 1;
  bool consequence = false;  ///< Of another rank's end (RankFailed).
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::PrepareLanes)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LaneReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::BatchSlotFree)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ForwardLane)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::BackwardLane)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LaneEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LaneFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReduceWithoutLanes)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GradientReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GradientSpread)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::UpdateParameters)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::UpdateEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RunEvaluation)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::EvaluationEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CopyState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CopyEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::StateCopied)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::DrainSnapshots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::SnapshotsDrained)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::WorkFailed)
