#pragma once

#include <memory>

#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

/// `inner` for all parameters but those that are tallied (Parameter), which have no state and whose
/// update is their gradient: the counts of the step, whether or not the guard lets it pass.
[[nodiscard]] std::unique_ptr<Optimizer> with_tallies(std::unique_ptr<Optimizer> inner);

}  // namespace train::engine
