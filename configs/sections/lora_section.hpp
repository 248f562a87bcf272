#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

/// [lora]: small matrices that are trained while the model's own weights stay as they are.
struct LoraSection {
  std::int64_t rank = 0;  ///< Inner dimension of an adapter; 0: there are none.
  double alpha = 16.0;    ///< Adapters are multiplied by alpha / rank,
  bool rslora = false;    ///< or by alpha / sqrt(rank).
  /// "all-linear", or patterns of the maps that get one: of whole names, or of their last parts.
  std::vector<std::string> targets = {"all-linear"};
  double dropout = 0.0;  ///< Of an adapter's input; 0 alone is supported.
};

}  // namespace train::configs
