#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [lora]: low-rank adapters, trained while the model's own weights are frozen.
struct LoraSection {
  std::int64_t rank = 0;
  double alpha = 16.0;
  bool rslora = false;
  std::vector<std::string> targets = {"all-linear"};
  double dropout = 0.0;
};

}  // namespace train::configs
