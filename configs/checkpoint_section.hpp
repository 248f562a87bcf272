#pragma once

#include <cstdint>

namespace train::configs {

/// [checkpoint]
struct CheckpointSection {
  std::int64_t interval_steps =
      100;                     ///< Save every this many steps and at the end; 0: only at the end.
  std::int64_t keep_last = 3;  ///< Keep the newest this many; 0: keep all.
};

}  // namespace train::configs
