#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [recovery]
struct RecoverySection {
  std::string rank_loss = "respawn";  ///< When a rank's process is lost: "respawn" or "stop".
  std::int64_t max_respawns = 3;      ///< Without a step of progress; then with fewer ranks.
  std::int64_t start_wait_s = 600;    ///< For the launchers of all nodes, before the first step.
  std::int64_t node_wait_s = 30;  ///< For nodes that are lost with their ranks; then without them.
  std::int64_t snapshot_interval_steps = 10;  ///< Of snapshots in memory; 0: none.
  bool buddy_snapshots = true;                ///< Each node's also in the memory of the next node.
};

}  // namespace train::configs
