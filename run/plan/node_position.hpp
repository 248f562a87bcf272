#pragma once

#include <cstdint>
#include <string>
#include <utility>

// Position of this node among the run's nodes, and its ranks.
namespace train::run {

/// Position of this launcher among the launchers of the run: one per node, node 0 is the head.
struct NodePosition {
  std::int64_t node = 0;
  std::int64_t nodes = 1;
  std::string start = {};  ///< Equal on all nodes of one start, different for the next.

  [[nodiscard]] bool head() const { return node == 0; }
  /// First rank of this node and the one after its last: contiguous, equal numbers to within one.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> ranks(std::int64_t all) const {
    return {all * node / nodes, all * (node + 1) / nodes};
  }
};

/// Index of `rank` within its node, from 0. REQUIRES: rank < ranks.
[[nodiscard]] inline std::int64_t local_rank(std::int64_t rank, std::int64_t ranks,
                                             std::int64_t nodes) {
  // Last node whose first rank is not after this one.
  const NodePosition position{.node = ((rank + 1) * nodes - 1) / ranks, .nodes = nodes};
  return rank - position.ranks(ranks).first;
}

}  // namespace train::run
