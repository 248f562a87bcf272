#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [run]: name, length and reports of this run.
struct RunSection {
  std::string name;                     ///< Required. Directory name below `dir`.
  std::string dir = "runs";             ///< Parent of all run directories.
  std::uint64_t seed = 1337;            ///< Seed of initial weights, data order and sampling.
  std::int64_t steps = 1000;            ///< Optimizer steps of the whole run.
  std::int64_t steps_per_job = 0;       ///< Largest number of steps of one start; 0: no limit.
  std::int64_t log_interval_steps = 1;  ///< Write a metrics line every this many steps.
  std::int64_t digest_interval_steps =
      100;                    ///< Write a weights digest every this many steps; 0: only at the end.
  std::string sample_prompt;  ///< Prompt of the sample shown at the end; empty: end-of-text.
  std::int64_t sample_tokens = 0;  ///< Tokens of the sample shown at the end; 0: none.
  bool tensorboard = true;         ///< Write TensorBoard event files.
};

/// [runtime]: use of the machine; never changes a result.
struct RuntimeSection {
  std::int64_t threads = 0;    ///< Compute threads per rank; 0: all cores this process may use.
  std::string device = "cpu";  ///< "cpu", or "cuda" if build and machine have it.
};

}  // namespace train::configs
