#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>

#include "engine/collective/channel_order.hpp"
#include "engine/collective/collective_schedule.hpp"
#include "kernels/device/stream.hpp"

// Within one rank: requests to the collective actor, and what becomes of them (EX-2).
namespace train::actors {

/// Rank -> collective and buffers: A command begins. Its operations enter the channels, its
/// reservations the schedule.
struct OpenCommand {
  std::uint64_t sequence = 0;
  engine::CommandKind kind = engine::CommandKind::stop;
  std::int64_t step = -1;  ///< Index of the step it is of, or comes after; -1: of none.
};

/// Layer, buffers or rank -> collective: Run this operation when its turn has come. What it sends
/// is on the compute stream, or was there before; a gradient is complete when `written` is reached.
/// Answered by CollectiveFinished.
struct RequestCollective {
  engine::CollectiveIdentity identity;
  kernels::Event written = {};
};

/// Collective -> layer, buffers or rank: The data of the operation has moved, and the work that
/// takes it in is on its stream.
struct CollectiveFinished {
  engine::CollectiveIdentity identity;
};

/// Compute or reduce stream -> collective: What an operation sends is complete.
struct OperationPacked {
  engine::CollectiveIdentity identity;
};

/// Compute or reduce stream -> collective: What an operation received has been used, so its staging
/// slot is free.
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

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OpenCommand)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RequestCollective)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CollectiveFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OperationPacked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OperationUnpacked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::BytesMoved)
