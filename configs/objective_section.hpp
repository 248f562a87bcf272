#pragma once

#include <string>

namespace train::configs {

/// [objective]. Each objective has some of these keys (objective_list.hpp); values of the others
/// are read by nobody.
struct ObjectiveSection {
  std::string name = "pretrain";  ///< One of objective_list.hpp.
  double label_smoothing = 0.0;   ///< Share of the target that goes to the whole vocabulary.
};

}  // namespace train::configs
