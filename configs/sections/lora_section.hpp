#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

/// [lora]: low-rank adapters, trained while the model's own weights are frozen.
struct LoraSection {
  std::int64_t rank = 0;  ///< Rank of an adapter; 0: no adapters.
  double alpha = 16.0;    ///< Adapter outputs are scaled by alpha / rank,
  bool rslora = false;    ///< or by alpha / sqrt(rank).
  /// "all-linear", or patterns of layers with adapters: of whole names, or of their last parts.
  std::vector<std::string> targets = {"all-linear"};
  double dropout = 0.0;  ///< Dropout on an adapter's input; only 0 is supported.
};

}  // namespace train::configs
