#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>

// Rank-local talk with the buffers actor, which lends gathered weights and gradient leaves.
namespace train::actors {

/// Layer shard -> buffers: the unit's weights for one visit of a command. `gather` is the lease
/// (BufferSchedule), -1 where the weights are resident and only have to be fresh.
struct LeaseWeights {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t gather = -1;
};
/// The answer: the weights are there, in the order of the compute stream.
struct WeightsLeased {};

/// Layer shard -> buffers: memory for the lane's gradient. `leaf` is the lease, -1 where the lane
/// writes into the group's own partial sums, which the sync before must have sent.
struct LeaseLeaf {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t sync = 0;
  std::int32_t leaf = -1;
};
struct LeafLeased {};

/// Layer shard -> buffers: all kernels of the visit are on the compute stream.
struct VisitEnqueued {
  std::uint64_t command = 0;
  std::uint32_t visit = 0;
};

/// Collective -> buffers: the group's gradient of this sync has been copied out: its leaf, or its
/// own partial sums, may be written again.
struct GradientPacked {
  std::uint64_t command = 0;
  std::uint32_t group = 0;
  std::int32_t sync = 0;
};

/// Buffers -> rank: every gather of this training step has ended here, so all ranks have read the
/// weights that this one sent, and they may change.
struct GathersFinished {
  std::uint64_t command = 0;
};

/// Rank -> buffers: the updates of this step are on the compute stream.
struct RefreshWeights {
  std::uint64_t command = 0;
};

/// Compute stream -> buffers: all work of earlier commands has run, so weights may be sent.
struct WeightsSettled {
  std::uint64_t command = 0;
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LeaseWeights)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::WeightsLeased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LeaseLeaf)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::LeafLeased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::VisitEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GradientPacked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::GathersFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RefreshWeights)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::WeightsSettled)
