#pragma once

#include <cstdint>
#include <memory>

#include "configs/optimizer_section.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

// Each is defined in a file of its own; registry.cpp gives it its name.
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const configs::OptimizerSection& section,
                                                    std::int64_t run_steps);

}  // namespace train::engine
