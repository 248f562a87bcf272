#pragma once

#include <cstdint>

namespace train::configs {

/// [watchdog]
struct WatchdogSection {
  std::int64_t stall_s = 5;        ///< Seconds; 0: nothing is said of stalls.
  std::int64_t abort_after_s = 0;  ///< Seconds of a stall that end the run; 0: none does.
};

}  // namespace train::configs
