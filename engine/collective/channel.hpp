#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace train::engine {

/// Independent ordered streams of collectives: each channel keeps its order, whatever the others
/// do.
enum class Channel : std::uint8_t { gather, reduce, control };
inline constexpr std::size_t kChannelCount = 3;
/// Collectives of one channel whose bytes may be in memory at a time.
inline constexpr std::uint32_t kStagingSlots = 2;

[[nodiscard]] const char* channel_name(Channel channel);

/// Which collective a caller wants to run.
struct CollectiveIdentity {
  std::uint64_t generation = 0;
  std::int64_t command = 0;  ///< Number of the command in the conductor's stream.
  Channel channel = Channel::control;
  std::uint32_t index = 0;  ///< In the channel, within the command.
  std::uint64_t hash = 0;   ///< CollectiveOp::hash (engine/sharding/collective_schedule.hpp).
};

/// "generation 1 command 7 reduce 2".
[[nodiscard]] std::string to_string(const CollectiveIdentity& identity);

}  // namespace train::engine
