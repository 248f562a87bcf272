#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/watch_messages.hpp"

namespace train::actors {

/// What a rank last said of itself, and when that came, on the head's clock.
struct HeardRank {
  std::optional<RankObserved> last = {};
  std::int64_t heard_ns = 0;  ///< Of `last`; before the first: since when it could have come.
};

/// Why a run stands still.
struct Stall {
  std::string text = {};    ///< From the one that waits to the one that is waited for; one line.
  std::int64_t age_ns = 0;  ///< How long the last one of the chain has been as it is.
  std::int32_t rank = -1;   ///< It; -1: none can be named.
  std::string work = {};    ///< What its stream is in, without step and lane; empty: nothing.
  bool circle = false;      ///< Ranks wait for each other: a defect of this program.
};

/// Why nothing moves, from what all ranks last said: the oldest stall whose end has lasted for
/// `stall_ns` or more. `now_ns`: the head's clock. `commands_wait`: the conductor waits for ranks
/// to finish a command. Pure.
[[nodiscard]] std::optional<Stall> find_stall(const std::vector<HeardRank>& ranks,
                                              std::int64_t now_ns, std::int64_t stall_ns,
                                              bool commands_wait);

}  // namespace train::actors
