#pragma once

#include <cstdint>
#include <string>

namespace train::sim {

struct TakenEntries;

/// What a seed of the recovery world has done.
struct RecoveryOutcome {
  std::string violation;  ///< Empty: none.
  std::string trace;      ///< What happened, line by line, if it was asked for.
  std::int64_t generations = 0;
  std::int64_t faults = 0;
  std::int64_t returns = 0;  ///< Nodes that took part again after they were given up.
  int exit_code = -1;        ///< Of the head.
};

/// Plays a head and the launchers of up to four more nodes, each of which carries out its table of
/// recovery (head_table.hpp, node_table.hpp), with faults, signals and messages in an order that
/// the seed picks. `taken`, if not null: counts the entries of the tables that are taken.
[[nodiscard]] RecoveryOutcome simulate_recovery(std::uint64_t seed, bool trace = false,
                                                TakenEntries* taken = nullptr);

}  // namespace train::sim
