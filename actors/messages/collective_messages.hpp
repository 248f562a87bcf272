#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>

// Rank-local talk with the collective actor (EX-2).
namespace train::actors {

enum class CollectiveChannel : std::uint8_t { gather, reduce, control };

/// Names one collective of one command. Two requests are the same operation iff all fields are
/// equal.
struct CollectiveIdentity {
  std::uint32_t generation = 0;
  std::uint64_t sequence = 0;  ///< Of the command.
  CollectiveChannel channel = CollectiveChannel::control;
  std::int32_t unit = -1;  ///< Of a reduce or gather; -1 on the control channel.

  friend bool operator==(const CollectiveIdentity&, const CollectiveIdentity&) = default;
};

/// Rank -> collective: a command begins; its expected operations enter the channels.
struct OpenCommand {
  std::uint64_t sequence = 0;
  std::uint8_t kind = 0;  ///< engine::CommandKind.
};

/// Layer shard, rank, evaluator, snapshot -> collective: run this operation when it is its turn.
struct RequestCollective {
  CollectiveIdentity identity;
};

/// Collective -> requester.
struct CollectiveFinished {
  CollectiveIdentity identity;
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::OpenCommand)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RequestCollective)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CollectiveFinished)
