#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [recovery]
struct RecoverySection {
  std::string rank_loss = "respawn";
  std::int64_t max_respawns = 3;
  std::int64_t start_wait_s = 600;
  std::int64_t node_wait_s = 30;
  std::int64_t snapshot_interval_steps = 10;
  bool buddy_snapshots = true;
};

}  // namespace train::configs
