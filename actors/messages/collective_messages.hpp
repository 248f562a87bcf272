#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>

#include "engine/collective/channel_order.hpp"
#include "engine/collective/collective_schedule.hpp"
#include "kernels/device/stream.hpp"

// Rank-local talk with the collective actor (EX-2).
namespace train::actors {

/// Rank -> collective and buffers: a command begins; its operations enter the channels.
struct OpenCommand {
  std::uint64_t sequence = 0;
  engine::CommandKind kind = engine::CommandKind::stop;
  std::int64_t step = -1;  ///< Index of the step it is of, or comes after; -1: of none.
};

/// Layer shard, buffers or rank -> collective: run this operation when it is its turn. What it
/// sends is on the compute stream, or was there before; of a reduction it is written when `written`
/// is reached.
struct RequestCollective {
  engine::CollectiveIdentity identity;
  kernels::Event written = {};
};

/// The answer: the data has moved, and what takes it in is on its stream.
struct CollectiveFinished {
  engine::CollectiveIdentity identity;
};

/// Compute or reduce stream -> collective: what an operation sends is complete, or what it received
/// is used.
struct OperationPacked {
  engine::CollectiveIdentity identity;
};
struct OperationUnpacked {
  engine::Channel channel = engine::Channel::control;
  std::uint32_t slot = 0;
};

/// Transport -> collective: the bytes of an operation have arrived (empty text), or never will.
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
