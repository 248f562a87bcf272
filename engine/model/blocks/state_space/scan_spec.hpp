#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Common part of the mixers of Mamba and Mamba-2: maps in and out, a convolution between them, and
/// a scan with rates and skips.
struct ScanSpec : BlockSpec {
  std::int64_t taps = 4;  ///< Width of the convolution.
  bool bias = false;      ///< Adds one to the maps in and out.
  bool conv_bias = true;
  Initializer step_bias_init = Initializer::step(1e-3, 0.1, 1e-4);
  std::string in = "mixer.in_proj", conv = "mixer.conv1d", out = "mixer.out_proj";
  std::string rates = "mixer.A_log", skip = "mixer.D";  ///< Whole names.

  [[nodiscard]] std::string_view role() const override { return "attention"; }

 protected:
  /// BlockSpec::mistake() of the convolution.
  [[nodiscard]] std::string taps_mistake() const;
  /// Rules of Dialect::gguf: those of the maps and the convolution of so many channels, and of the
  /// branch's norm.
  [[nodiscard]] std::vector<TensorRule> gguf_rules(const BranchSpec& branch,
                                                   std::int64_t channels) const;
};

}  // namespace train::engine
