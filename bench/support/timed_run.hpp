#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/ranks/ranks_support.hpp"

// Timing of one run of the real program: the end of each step, the publication of each checkpoint,
// and memory use.
namespace train::bench {

struct Save {
  std::int64_t step = 0;     ///< Step after which it was taken.
  double published_s = 0.0;  ///< On the clock of TimedRun.
};

struct MemorySample {
  double at_s = 0.0;
  double bytes = 0.0;  ///< Resident bytes without file pages.
};

struct TimedRun {
  std::vector<double> step_end_s;  ///< End of step i + 1, in seconds from the start of the process.
  std::vector<Save> saves;         ///< In order; without that of the last step.
  std::vector<MemorySample> memory;
  double state_bytes = 0.0;  ///< Bytes of the newest checkpoint's files.

  [[nodiscard]] double step_begin_s(std::int64_t step) const;  ///< REQUIRES: step >= 2.
  [[nodiscard]] double step_seconds(std::int64_t step) const;  ///< REQUIRES: step >= 2.
};

/// Runs configs/quickstart.toml with `place`'s keys and `keys`, and removes its files unless told
/// otherwise. `sample_memory`: every 5 ms, at a small cost to the run. Blocks. Throws
/// std::runtime_error with the end of the program's output if it fails.
struct TimedSpec {
  Words keys;
  bool sample_memory = false;
  std::string name = "timed";  ///< Name of the run.
  bool keep = false;
};
[[nodiscard]] TimedRun run_timed(const Workplace& place, const TimedSpec& spec);

}  // namespace train::bench
