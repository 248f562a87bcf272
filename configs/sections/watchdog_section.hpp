#pragma once

#include <cstdint>

namespace train::configs {

/// [watchdog]
struct WatchdogSection {
  std::int64_t stall_s = 5;        ///< Seconds until a stall is reported; 0: never.
  std::int64_t abort_after_s = 0;  ///< Seconds of a stall that end the run; 0: never.
};

}  // namespace train::configs
