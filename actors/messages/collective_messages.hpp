#pragma once

#include <cstdint>
#include <string>

#include "engine/sharding/collective_schedule.hpp"
#include "kernels/device/stream.hpp"

#include "actors/messages/fields.hpp"

// Within one rank: requests to the collective actor and their results (EX-2); reservations of
// gathered weights and of gradient buffers by the buffers actor.
namespace train::actors {

/// Layer, buffers or rank -> collective: Run this operation when its turn has come. Its data is
/// already ordered on the compute stream; a gradient is complete when `written` is reached.
/// Answered by CollectiveFinished.
struct RequestCollective {
  engine::CollectiveIdentity identity;
  kernels::Event written = {};
};

/// Collective -> layer, buffers or rank: The data of the operation has moved, and the work that
/// unpacks it is on its stream.
struct CollectiveFinished {
  engine::CollectiveIdentity identity;
};

/// Compute or reduce stream -> collective: The data that an operation sends is complete.
struct OperationPacked {
  engine::CollectiveIdentity identity;
};

/// Compute or reduce stream -> collective: The data received by an operation has been used, so its
/// staging slot is free.
struct OperationUnpacked {
  engine::Channel channel = engine::Channel::control;
  std::uint32_t slot = 0;
};

/// Transport -> collective: The bytes of an operation have arrived (empty `failure`), or never
/// will.
struct BytesMoved {
  engine::CollectiveIdentity identity;
  std::string failure;
};

/// Layer -> buffers: A visit of the layer needs the group's weights. `gather` names the buffer
/// reservation (BufferSchedule); -1: the weights are resident and only have to be up to date.
/// Answered by WeightsAcquired.
struct AcquireWeights {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t gather = -1;
};

/// Buffers -> layer: The weights requested by AcquireWeights are available, in the order of the
/// compute stream.
struct WeightsAcquired {};

/// Layer -> buffers: A visit of the layer needs memory for its lane's gradient. `gradient buffer`
/// names the reservation of a gradient buffer; -1: the lane writes into the group's own partial
/// sums, which the previous sync must have sent. Answered by GradientBufferAcquired.
struct AcquireGradientBuffer {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t sync = 0;
  std::int32_t gradient_buffer = -1;
};

/// Buffers -> layer: The memory requested by AcquireGradientBuffer may be written, in the order of
/// the compute stream.
struct GradientBufferAcquired {};

/// Layer -> buffers: All kernels of the visit are on the compute stream, so its reservations may
/// end.
struct VisitEnqueued {
  std::uint64_t command = 0;
  std::uint32_t visit = 0;
};

/// Collective -> buffers: The group's gradient of this sync has been copied out. Its gradient
/// buffer, or the group's own partial sums, may be written again.
struct GradientPacked {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t sync = 0;
};

/// Buffers -> rank: Every gather of this training step has ended here, so all ranks have read the
/// weights sent by this one, and they may change.
struct GathersFinished {
  std::uint64_t command = 0;
};

/// Rank -> buffers: The updates of this step are on the compute stream: all-gather the new rows.
struct AllGatherWeights {
  std::uint64_t command = 0;
};

/// Compute stream -> buffers: All work of earlier commands has run, so weights may be sent.
struct WeightsFinalized {
  std::uint64_t command = 0;
};

}  // namespace train::actors

TRAIN_LOCAL_MESSAGE(train::actors::RequestCollective)
TRAIN_LOCAL_MESSAGE(train::actors::CollectiveFinished)
TRAIN_LOCAL_MESSAGE(train::actors::OperationPacked)
TRAIN_LOCAL_MESSAGE(train::actors::OperationUnpacked)
TRAIN_LOCAL_MESSAGE(train::actors::BytesMoved)
TRAIN_LOCAL_MESSAGE(train::actors::AcquireWeights)
TRAIN_LOCAL_MESSAGE(train::actors::WeightsAcquired)
TRAIN_LOCAL_MESSAGE(train::actors::AcquireGradientBuffer)
TRAIN_LOCAL_MESSAGE(train::actors::GradientBufferAcquired)
TRAIN_LOCAL_MESSAGE(train::actors::VisitEnqueued)
TRAIN_LOCAL_MESSAGE(train::actors::GradientPacked)
TRAIN_LOCAL_MESSAGE(train::actors::GathersFinished)
TRAIN_LOCAL_MESSAGE(train::actors::AllGatherWeights)
TRAIN_LOCAL_MESSAGE(train::actors::WeightsFinalized)
