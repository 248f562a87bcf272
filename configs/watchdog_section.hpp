#pragma once

#include <cstdint>

namespace train::configs {

/// [watchdog]
struct WatchdogSection {
  std::int64_t stall_s = 5;  ///< Seconds; 0: nothing is said of stalls.
};

}  // namespace train::configs
