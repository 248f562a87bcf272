#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [run]: name, length and reports of this run.
struct RunSection {
  std::string name;
  std::string dir = "runs";
  std::uint64_t seed = 1337;
  std::int64_t steps = 1000;
  std::int64_t steps_per_job = 0;
  std::int64_t log_interval_steps = 1;
  std::int64_t digest_interval_steps = 100;
  std::string sample_prompt;
  std::int64_t sample_tokens = 0;
  std::int64_t sample_interval_steps = 0;
  std::vector<std::string> sample_prompts;
  std::vector<std::string> sample_chats;
  double sample_temperature = 0.8;
  std::uint64_t sample_seed = 0;
  bool tensorboard = true;
};

/// [runtime]: use of the machine; never changes a result.
struct RuntimeSection {
  std::int64_t threads = 0;
  std::string device = "cpu";
};

}  // namespace train::configs
