#pragma once

#include <cstdint>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [watchdog]
struct WatchdogSection {
  std::int64_t stall_s = 5;
  std::int64_t abort_after_s = 0;
};

}  // namespace train::configs
