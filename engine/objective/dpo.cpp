#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

// DPO, and what differs from it in the loss of a pair alone.
std::unique_ptr<const Objective> make_dpo(const configs::ObjectiveSection& section) {
  return make_pair_objective(section.loss, section);
}

}  // namespace train::engine
