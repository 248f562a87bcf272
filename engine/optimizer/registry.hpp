#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "configs/fields/optimizer_list.hpp"
#include "configs/sections/optimizer_section.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

/// One optimizer: its name in optimizer.name and how it is made of the section.
struct RegisteredOptimizer {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const configs::OptimizerSection& section,
                                     std::int64_t run_steps);
};

/// All of them, by name.
[[nodiscard]] std::span<const RegisteredOptimizer> registered_optimizers();

/// The optimizer called section.name. REQUIRES: a validated section.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const configs::OptimizerSection& section,
                                                        std::int64_t run_steps);

// The maker of every optimizer of configs/fields/optimizer_list.hpp. Each is defined in a file of
// its own (families share one). `run_steps`: steps of the whole run. REQUIRES: a validated section.
#define TRAIN_OPTIMIZER_MAKER(identifier, name, keys)         \
  [[nodiscard]] std::unique_ptr<Optimizer> make_##identifier( \
      const configs::OptimizerSection& section, std::int64_t run_steps);
TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_MAKER)
#undef TRAIN_OPTIMIZER_MAKER

}  // namespace train::engine
