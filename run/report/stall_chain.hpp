#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/events/observed.hpp"

namespace train::run {

/// Last report of a rank, and its arrival on the head's clock.
struct HeardRank {
  std::optional<RankObserved> last = {};
  std::int64_t heard_ns = 0;  ///< Arrival of `last`; at first its earliest time.
};

/// Cause of a stall.
struct Stall {
  std::string text = {};    ///< Chain from the waiting rank to the awaited one; one line.
  std::int64_t age_ns = 0;  ///< Time since the chain's last rank has changed.
  std::int32_t rank = -1;   ///< Last rank of the chain; -1: unknown.
  std::string work = {};    ///< Work of that rank's stream, without step and lane; empty: none.
  bool circle = false;      ///< Ranks wait for each other: a defect of this program.
};

/// Finds the cause of a stall from the last reports of all ranks: the oldest stall whose last rank
/// has been unchanged for `stall_ns` or more. `now_ns`: the head's clock. `commands_wait`: the
/// conductor waits for ranks to finish a command. Pure.
[[nodiscard]] std::optional<Stall> find_stall(const std::vector<HeardRank>& ranks,
                                              std::int64_t now_ns, std::int64_t stall_ns,
                                              bool commands_wait);

}  // namespace train::run
