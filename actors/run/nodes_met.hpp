#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace train::actors {

/// Steps of which a node has snapshots in memory of all ranks of a node, the newest first.
using HeldSteps = std::vector<std::int64_t>;

/// What a node has in memory.
struct NodeSteps {
  HeldSteps own;
  HeldSteps buddy;  ///< Of the ranks of the node before it; the last node is before node 0.
};

/// Which launchers of the other nodes have joined a generation.
struct NodesMet {
  std::vector<NodeSteps> held;        ///< By each that has come: by node, if all have.
  std::vector<std::int64_t> missing;  ///< Nodes that have not come in time, ascending.

  [[nodiscard]] bool complete() const { return missing.empty(); }
};

/// The newest step up to `reported` that the ranks of each node have, on that node or on the next
/// one; none: there is none. `nodes`: all of them, in order. Pure.
[[nodiscard]] std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes,
                                                        std::int64_t reported);

/// Whether `steps` has `step`.
[[nodiscard]] bool has_step(const HeldSteps& steps, std::int64_t step);

}  // namespace train::actors
