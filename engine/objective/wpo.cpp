#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

// WPO: DPO whose pairs are weighted by how likely the model is to write them itself.
std::unique_ptr<const Objective> make_wpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("wpo", section);
}

}  // namespace train::engine
