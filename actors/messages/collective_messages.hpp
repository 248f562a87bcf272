#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>

#include "engine/collective/channel_order.hpp"
#include "engine/collective/collective_schedule.hpp"

// Rank-local talk with the collective actor (EX-2).
namespace train::actors {

/// Rank -> collective: a command begins; its operations enter the channels.
struct OpenCommand {
  std::uint64_t sequence = 0;
  engine::CommandKind kind = engine::CommandKind::stop;
};

/// Layer shard or rank -> collective: run this operation when it is its turn.
struct RequestCollective {
  engine::CollectiveIdentity identity;
};

/// The answer: the operation's data has moved.
struct CollectiveFinished {
  engine::CollectiveIdentity identity;
};

/// The identity of a command's collective on `channel` for `unit` (-1 on the control channel).
/// REQUIRES: the command has one.
[[nodiscard]] engine::CollectiveIdentity identity_of(std::uint32_t generation,
                                                     std::uint64_t sequence,
                                                     engine::CommandShape command,
                                                     engine::Channel channel, std::int32_t unit);

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OpenCommand)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RequestCollective)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CollectiveFinished)
