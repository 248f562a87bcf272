#pragma once

#include <cstdint>
#include <memory>

#include "configs/optimizer_list.hpp"
#include "configs/optimizer_section.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

// The maker of every optimizer of configs/optimizer_list.hpp. Each is defined in a file of its own
// (families share one). `run_steps`: steps of the whole run. REQUIRES: a validated section.
#define TRAIN_OPTIMIZER_MAKER(identifier, name, keys)         \
  [[nodiscard]] std::unique_ptr<Optimizer> make_##identifier( \
      const configs::OptimizerSection& section, std::int64_t run_steps);
TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_MAKER)
#undef TRAIN_OPTIMIZER_MAKER

}  // namespace train::engine
