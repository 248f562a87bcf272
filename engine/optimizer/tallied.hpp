#pragma once

#include <memory>

#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

/// `inner` for all parameters but those that are tallied (Parameter), which have no state. Their
/// update is their gradient, the counts of the step, whether or not the guard lets it pass; one
/// that balances moves by them, if the guard does.
[[nodiscard]] std::unique_ptr<Optimizer> with_tallies(std::unique_ptr<Optimizer> inner);

}  // namespace train::engine
