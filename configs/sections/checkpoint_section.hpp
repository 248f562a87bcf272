#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [checkpoint]
struct CheckpointSection {
  std::int64_t interval_steps =
      100;                      ///< Save every this many steps and at the end; 0: only at the end.
  std::int64_t keep_last = 3;   ///< Keep the newest this many; 0: keep all.
  std::int64_t keep_every = 0;  ///< Also keep steps that are a multiple of this; 0: none.
  std::int64_t keep_best = 0;   ///< Also keep this many with the lowest validation loss; 0: none.
  std::string local_dir = "auto";  ///< "auto" ($SLURM_TMPDIR when set), "none", or a path.
  std::int64_t drain_s = 300;      ///< At the end, wait this long for the last checkpoint.
};

}  // namespace train::configs
