#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>

// Within one rank: reservations of gathered weights and of gradient buffers, which the buffers
// actor makes.
namespace train::actors {

/// Layer -> buffers: A visit of the layer needs the group's weights. `gather` names the buffer
/// reservation (BufferSchedule); -1: the weights are resident and only have to be up to date.
/// Answered by WeightsAcquired.
struct AcquireWeights {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t gather = -1;
};

/// Buffers -> layer: The weights that AcquireWeights asked for are there, in the order of the
/// compute stream.
struct WeightsAcquired {};

/// Layer -> buffers: A visit of the layer needs memory for its lane's gradient. `gradient buffer`
/// names the reservation of a gradient buffer; -1: the lane writes into the group's own partial
/// sums, which the sync before must have sent. Answered by GradientBufferAcquired.
struct AcquireGradientBuffer {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t sync = 0;
  std::int32_t gradient_buffer = -1;
};

/// Buffers -> layer: The memory that AcquireGradientBuffer asked for may be written, in the order
/// of the compute stream.
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
/// weights that this one sent, and they may change.
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

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::AcquireWeights)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::WeightsAcquired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::AcquireGradientBuffer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GradientBufferAcquired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::VisitEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GradientPacked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GathersFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::AllGatherWeights)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::WeightsFinalized)
