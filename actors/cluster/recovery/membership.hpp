#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::actors {

/// Steps of which a node has snapshots in memory of all ranks of a node, the newest first.
using HeldSteps = std::vector<std::int64_t>;

/// What a node has in memory.
struct NodeSteps {
  HeldSteps own;
  HeldSteps buddy;  ///< Of the ranks of the node before it; the last node is before node 0.
  /// The step that the ranks went on from when their numbers became others, if the node still has
  /// what it then had of the ranks before; -1: it has not.
  std::int64_t earlier = -1;
};

/// Which launchers of the other nodes have joined a generation. Nodes by their places, the head's
/// is 0.
struct Membership {
  std::vector<NodeSteps> held;        ///< Of nodes 1, 2, ...; nothing of those that are missing.
  std::vector<std::int64_t> missing;  ///< Nodes that have not come in time, ascending.
  /// Nodes that have come and did not take part, as they were first numbered, ascending.
  std::vector<std::int64_t> returned;
  std::optional<Error> cut;  ///< Why nobody could come: the head's own network.

  [[nodiscard]] bool complete() const { return missing.empty(); }
  /// Those that took part, and nobody else.
  [[nodiscard]] bool same() const { return complete() && returned.empty(); }
  /// How many there are with the head.
  [[nodiscard]] std::int64_t come() const {
    return static_cast<std::int64_t>(held.size() + 1 - missing.size());
  }
  /// Their places, ascending.
  [[nodiscard]] std::vector<std::int64_t> places() const;
};

/// The newest step up to `reported` that the ranks of each node have, on that node or on the next
/// one; none: there is none. `nodes`: all of them, in order. Pure.
[[nodiscard]] std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes,
                                                        std::int64_t reported);

/// For people: "node 2 has", "nodes 1, 2 have". REQUIRES: `nodes` has some.
[[nodiscard]] std::string nodes_have(std::span<const std::int64_t> nodes);

/// The same of those that are missing. `members`:
/// PreparedRun::members. REQUIRES: some are.
[[nodiscard]] std::string missing_have(const Membership& met,
                                       std::span<const std::int64_t> members);

/// Whether `steps` has `step`.
[[nodiscard]] bool has_step(const HeldSteps& steps, std::int64_t step);

}  // namespace train::actors
