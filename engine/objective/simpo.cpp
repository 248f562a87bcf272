#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

// SimPO: mean log-probabilities themselves, with a margin, without a reference.
std::unique_ptr<const Objective> make_simpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("simpo", section);
}

}  // namespace train::engine
