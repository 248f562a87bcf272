#pragma once

#include <cstdint>
#include <vector>

namespace train::actors {

/// Steps of which a node has snapshots in memory of all its ranks, the newest first.
using HeldSteps = std::vector<std::int64_t>;

/// Which launchers of the other nodes have joined a generation.
struct NodesMet {
  std::vector<HeldSteps> held;        ///< By each that has come.
  std::vector<std::int64_t> missing;  ///< Nodes that have not come in time, ascending.

  [[nodiscard]] bool complete() const { return missing.empty(); }
};

}  // namespace train::actors
