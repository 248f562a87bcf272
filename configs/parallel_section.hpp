#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [parallel]: who computes what; never what is computed.
struct ParallelSection {
  std::int64_t ranks = 1;         ///< Ranks of the run.
  std::string strategy = "none";  ///< "none" (one rank keeps everything).
};

}  // namespace train::configs
