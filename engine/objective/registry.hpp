#pragma once

#include <memory>
#include <string>

#include "configs/fields/objective_list.hpp"
#include "configs/sections/objective_section.hpp"
#include "engine/objective/objective.hpp"

namespace train::engine {

/// The objective called section.name. REQUIRES: a validated section.
[[nodiscard]] std::unique_ptr<const Objective> make_objective(
    const configs::ObjectiveSection& section);

using ObjectiveMaker = std::unique_ptr<const Objective> (*)(const configs::ObjectiveSection&);
/// Adds one to those of configs/fields/objective_list.hpp, for programs that have others; of a name
/// that was added before it takes the place. REQUIRES: no other thread makes objectives meanwhile.
void add_objective(const std::string& name, ObjectiveMaker make);

/// Objective::schedule() that keeps the objective alive; null: every step trains all.
/// REQUIRES: a validated section.
[[nodiscard]] std::shared_ptr<const TrainingSchedule> schedule_of(
    const configs::ObjectiveSection& section);

// The maker of every objective of configs/fields/objective_list.hpp, defined in the file that is
// named for it, those of pairs in pair_objective.cpp. REQUIRES: a validated section.
#define TRAIN_OBJECTIVE_MAKER(identifier, name, form, keys)         \
  [[nodiscard]] std::unique_ptr<const Objective> make_##identifier( \
      const configs::ObjectiveSection& section);
TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_MAKER)
#undef TRAIN_OBJECTIVE_MAKER

}  // namespace train::engine
