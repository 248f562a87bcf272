#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [data.sources]: a table of these, one directory's share of the rows from a step on. Meaning and
/// range of each member: configs/fields/source_table.cpp.
struct DataSource {
  std::string dir;
  double weight = 1.0;
  double max_epochs = 0.0;
  std::int64_t from_step = 0;

  bool operator==(const DataSource&) const = default;
};

/// [data]: place of the tokens, and division into sequences.
struct DataSection {
  std::string dir;
  std::vector<DataSource> sources = {};
  std::string forget_dir;
  std::int64_t sequence_length = 256;
  std::string order = "lanes";
  std::uint64_t seed = 1337;
};

/// [batch]: a step's global batch = lanes * micro_batch sequences, for any number of ranks.
struct BatchSection {
  std::int64_t lanes = 4;
  std::int64_t micro_batch = 4;
  std::vector<std::int64_t> radix = {2};
};

/// [eval]: evaluation on fixed lanes of the validation tokens.
struct EvalSection {
  std::int64_t interval_steps = 100;
  std::int64_t lanes = 8;
  std::vector<std::string> choices = {};
  std::int64_t choices_interval_steps = 0;
};

/// 0: never.
[[nodiscard]] inline std::int64_t choices_interval(const EvalSection& section) {
  return section.choices.empty()              ? 0
         : section.choices_interval_steps > 0 ? section.choices_interval_steps
                                              : section.interval_steps;
}

}  // namespace train::configs
