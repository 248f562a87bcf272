#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace train::sim {

/// Defects that the simulator has to find: each is put into the surroundings of the product (its
/// connections, its disk), so that the product has no switch for them.
enum class Bug : std::uint8_t {
  none,
  rank_local_evaluation,    ///< Only rank 0 evaluates; the others have returned early.
  commit_before_fsync,      ///< Shards are synced after their checkpoint is published.
  collective_out_of_order,  ///< One rank starts two collectives of a channel the wrong way round.
  stale_generation,         ///< What a generation that is over still sends is taken for current.
  lost_credit,              ///< A rank finishes a command, and the conductor never hears of it.
  ends_process,             ///< The product ends the process, as if all were well.
};

struct NamedBug {
  Bug bug;
  std::string_view name;
};

inline constexpr std::array<NamedBug, 6> kBugs = {
    {{Bug::rank_local_evaluation, "rank-local-evaluation"},
     {Bug::commit_before_fsync, "commit-before-fsync"},
     {Bug::collective_out_of_order, "collective-out-of-order"},
     {Bug::stale_generation, "stale-generation"},
     {Bug::lost_credit, "lost-credit"},
     {Bug::ends_process, "ends-process"}}};

[[nodiscard]] inline std::optional<Bug> bug_named(std::string_view name) {
  for (const NamedBug& one : kBugs) {
    if (one.name == name) {
      return one.bug;
    }
  }
  return std::nullopt;
}

[[nodiscard]] inline std::string_view name_of(Bug bug) {
  for (const NamedBug& one : kBugs) {
    if (one.bug == bug) {
      return one.name;
    }
  }
  return "none";
}

}  // namespace train::sim
