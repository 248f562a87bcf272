#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

// DPO with log-probabilities that are means over tokens: long answers weigh no more.
std::unique_ptr<const Objective> make_dpo_norm(const configs::ObjectiveSection& section) {
  return make_pair_objective("dpo_norm", section);
}

}  // namespace train::engine
