#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "actors/messages/watch_messages.hpp"

namespace train::actors {

/// A rank that has said nothing for so long is silent. Ranks report once a second.
inline constexpr std::int64_t kSilent_ns = 2'500'000'000;

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

/// Works out who is waited for, from what all ranks last said. A pure function: every collective
/// that a rank waits in is followed to the rank that has not got there, what that one does or
/// waits for in turn, and so on. Each (rank, collective) is visited once, so it ends; a chain that
/// comes back to where it was is said to be a circle.
class StallChain {
 public:
  /// `now_ns`: the head's clock. Borrows `ranks`.
  StallChain(const std::vector<HeardRank>& ranks, std::int64_t now_ns)
      : ranks_(ranks), now_ns_(now_ns) {}

  /// The oldest stall whose end has lasted for `stall_ns` or more.
  /// `commands_wait`: the conductor waits for ranks to finish a command.
  [[nodiscard]] std::optional<Stall> find(std::int64_t stall_ns, bool commands_wait) const;

 private:
  using Visited = std::set<std::tuple<std::int32_t, std::int32_t, std::uint64_t, std::uint32_t>>;

  [[nodiscard]] const HeardRank& heard(std::int32_t rank) const;
  [[nodiscard]] std::int64_t silence_ns(std::int32_t rank) const;
  [[nodiscard]] bool silent(std::int32_t rank) const { return silence_ns(rank) > kSilent_ns; }
  /// Of something that the rank said of itself, as of now.
  [[nodiscard]] std::int64_t age(std::int32_t rank, std::int64_t then_ns) const;
  [[nodiscard]] const ObservedChannel* channel(std::int32_t rank, std::int32_t which) const;

  [[nodiscard]] Stall wait_in(std::int32_t rank, const ObservedChannel& at, Visited& visited) const;
  [[nodiscard]] std::optional<std::int32_t> awaited_in(const ObservedChannel& at) const;
  [[nodiscard]] Stall held_before(std::int32_t rank, const ObservedChannel& target,
                                  Visited& visited) const;
  [[nodiscard]] Stall doing(std::int32_t rank, const std::string& prefix, std::int32_t beside,
                            Visited& visited) const;
  [[nodiscard]] std::optional<Stall> on_stream(std::int32_t rank, const std::string& prefix) const;
  [[nodiscard]] Stall is_silent(std::int32_t rank) const;

  const std::vector<HeardRank>& ranks_;
  std::int64_t now_ns_;
};

}  // namespace train::actors
