#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [scaling]: what a scaling rule decides from a number of heads (configs/scaling.hpp).
struct ScalingSection {
  std::string rule = "none";           ///< "none", or a rule of the table: "enoki", "qwen3".
  std::int64_t heads = 0;              ///< Attention heads; required with a rule.
  std::string params = "total";        ///< Weights that tokens are counted for.
  double tokens_per_parameter = 20.0;  ///< Tokens of the run over those weights.
  double omega = 4.0;                  ///< Weight decay of the run, free of its length and lr.
  std::string table;                   ///< File of rules; empty: the shipped ones.
};

}  // namespace train::configs
