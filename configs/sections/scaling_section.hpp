#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [scaling]: scaling rule applied to a number of heads (configs/scaling/scaling.hpp).
struct ScalingSection {
  std::string rule = "none";
  std::int64_t heads = 0;
  std::string params = "total";
  double tokens_per_parameter = 20.0;
  double omega = 4.0;
  std::string table;
};

}  // namespace train::configs
