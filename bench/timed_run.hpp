#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/ranks_support.hpp"

// One run of the real program as its clock sees it: when each step ended, when each checkpoint was
// published, how much memory there was.
namespace train::bench {

struct Save {
  std::int64_t step = 0;     ///< After which it was taken.
  double published_s = 0.0;  ///< On the clock of TimedRun.
};

struct MemorySample {
  double at_s = 0.0;
  double bytes = 0.0;  ///< Resident, without files' pages.
};

struct TimedRun {
  std::vector<double> step_end_s;  ///< Of step i + 1, in seconds from the start of the process.
  std::vector<Save> saves;         ///< In order; without the last step's.
  std::vector<MemorySample> memory;
  double state_bytes = 0.0;  ///< Of the newest checkpoint's files.

  [[nodiscard]] double step_begin_s(std::int64_t step) const;  ///< Of step >= 2.
  [[nodiscard]] double step_seconds(std::int64_t step) const;  ///< Of step >= 2.
};

/// Runs configs/quickstart.toml with `place`'s keys and `keys`, and removes what the run left
/// unless told otherwise. `sample_memory`: every 5 ms, which costs the run a little. Blocks. Throws
/// std::runtime_error with the end of the program's output if it fails.
struct TimedSpec {
  Words keys;
  bool sample_memory = false;
  std::string name = "timed";  ///< Of the run.
  bool keep = false;
};
[[nodiscard]] TimedRun run_timed(const Workplace& place, const TimedSpec& spec);

}  // namespace train::bench
