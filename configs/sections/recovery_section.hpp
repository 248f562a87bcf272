#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [recovery]
struct RecoverySection {
  std::string rank_loss = "respawn";  ///< Reaction to a lost rank process: "respawn" or "stop".
  std::int64_t max_respawns = 3;      ///< Respawns without progress, before using fewer ranks.
  std::int64_t start_wait_s = 600;    ///< Wait for all nodes' launchers before the first step.
  std::int64_t node_wait_s = 30;      ///< Wait for a lost node before continuing without it.
  std::int64_t snapshot_interval_steps = 10;  ///< Interval of snapshots in memory; 0: none.
  bool buddy_snapshots = true;                ///< Keep each node's snapshots also on the next node.
};

}  // namespace train::configs
