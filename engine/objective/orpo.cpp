#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

// ORPO: cross-entropy of the chosen conversation, and the odds of both answers; no reference.
std::unique_ptr<const Objective> make_orpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("orpo", section);
}

}  // namespace train::engine
