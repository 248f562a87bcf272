#pragma once

#include <cstdint>
#include <vector>

namespace train::run {

/// Steps of the complete snapshots that a node holds, newest first.
struct NodeSteps {
  std::vector<std::int64_t> own;
  std::vector<std::int64_t> buddy;  ///< The previous node's; the last node precedes node 0.
  /// Step that the ranks resumed from when positions last changed, if the node still holds what it
  /// then had of the earlier ranks; -1: it does not.
  std::int64_t earlier = -1;
};

/// Ranks that wrote the snapshot that a run resumes from, and the nodes that hold it.
struct MemoryOrigin {
  std::int64_t step = -1;  ///< -1: none.
  std::int64_t ranks = 1;
  /// By node of those ranks: the present node that holds their snapshots.
  std::vector<std::int32_t> holders = {};
  /// By node of those ranks: another node that holds them as well; -1: none. Used only by the head.
  std::vector<std::int32_t> spares = {};
};

}  // namespace train::run
