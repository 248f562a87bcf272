#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

/// [data]: place of the tokens, and division into sequences.
struct DataSection {
  std::string dir;                     ///< Required. Directory of token files or of packed rows.
  std::string forget_dir;              ///< Packed rows to forget, if the objective forgets.
  std::int64_t sequence_length = 256;  ///< Tokens per sequence (T).
  std::string order = "lanes";  ///< "lanes": by run.seed, step and lane; "dstar": DSTAR trainer's
                                ///< order.
  std::uint64_t seed = 1337;    ///< dstar: seed of the reading order.
};

/// [batch]: a step's global batch = lanes * micro_batch sequences, for any number of ranks.
struct BatchSection {
  std::int64_t lanes = 4;        ///< Microbatches per step (lanes).
  std::int64_t micro_batch = 4;  ///< Sequences per lane.
};

/// [eval]: evaluation on fixed lanes of the validation tokens.
struct EvalSection {
  std::int64_t interval_steps = 100;  ///< Evaluate every this many steps and at the end; 0: never.
  std::int64_t lanes = 8;             ///< Lanes per evaluation (each micro_batch sequences).
  std::vector<std::string> choices = {};  ///< Files of multiple-choice questions, scored
  /// every this many steps, before the first one and at the end; 0: as interval_steps.
  std::int64_t choices_interval_steps = 0;
};

/// 0: never.
[[nodiscard]] inline std::int64_t choices_interval(const EvalSection& section) {
  return section.choices.empty()              ? 0
         : section.choices_interval_steps > 0 ? section.choices_interval_steps
                                              : section.interval_steps;
}

}  // namespace train::configs
