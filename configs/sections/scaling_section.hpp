#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [scaling]: scaling rule applied to a number of heads (configs/scaling.hpp).
struct ScalingSection {
  std::string rule = "none";           ///< "none", or a rule of the table: "enoki", "qwen3".
  std::int64_t heads = 0;              ///< Attention heads; required with a rule.
  std::string params = "total";        ///< Weights counted by tokens_per_parameter.
  double tokens_per_parameter = 20.0;  ///< Training tokens per such weight.
  double omega = 4.0;  ///< Total weight decay of the run, independent of its length and lr.
  std::string table;   ///< File of rules; empty: the shipped ones.
};

}  // namespace train::configs
