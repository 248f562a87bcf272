#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/bugs.hpp"
#include "tests/sim/scene.hpp"

namespace train::sim {

/// What became of a seed.
struct Outcome {
  std::string violation;    ///< Empty: none. One line, the same each time.
  std::uint64_t trace = 0;  ///< Digest of the order of events.
  Tally tally;
};

/// Plays a seed: a run over as many starts as it takes to its last step. `tokens`: a directory that
/// write_tokens() has filled. One at a time in a process.
[[nodiscard]] Outcome simulate(std::uint64_t seed, Bug bug, const std::string& tokens);

}  // namespace train::sim
