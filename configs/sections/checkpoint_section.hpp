#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [checkpoint]
struct CheckpointSection {
  std::int64_t interval_steps = 100;
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 1;
  std::string local_dir = "auto";
  std::int64_t drain_s = 300;
};

}  // namespace train::configs
