#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "configs/optimizer_section.hpp"
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

}  // namespace train::engine
