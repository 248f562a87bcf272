#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [run]: what this run is called, how long it is, and what it reports.
struct RunSection {
  std::string name;                     ///< Required. Directory name below `dir`.
  std::string dir = "runs";             ///< Parent of all run directories.
  std::uint64_t seed = 1337;            ///< Seed of initial weights, data order and sampling.
  std::int64_t steps = 1000;            ///< Optimizer steps of the whole run.
  std::int64_t steps_per_job = 0;       ///< One start does at most so many of them; 0: all.
  std::int64_t log_interval_steps = 1;  ///< A metrics line every this many steps.
  std::int64_t digest_interval_steps =
      100;                         ///< A weights digest every this many steps; 0: only at the end.
  std::string sample_prompt;       ///< Prompt of the sample shown at the end; empty: end-of-text.
  std::int64_t sample_tokens = 0;  ///< Tokens of the sample shown at the end; 0: none.
  bool tensorboard = true;         ///< Write TensorBoard event files.
};

/// [runtime]: what the machine is used for; never changes a result.
struct RuntimeSection {
  std::int64_t threads = 0;    ///< Compute threads of a rank; 0: all cores this process may use.
  std::string device = "cpu";  ///< "cpu", or "cuda" where build and machine have it.
};

}  // namespace train::configs
