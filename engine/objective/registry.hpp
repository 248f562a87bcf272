#pragma once

#include <memory>

#include "configs/objective_list.hpp"
#include "configs/sections/objective_section.hpp"
#include "engine/objective/objective.hpp"

namespace train::engine {

/// The objective called section.name. REQUIRES: a validated section.
[[nodiscard]] std::unique_ptr<const Objective> make_objective(
    const configs::ObjectiveSection& section);

/// Its Objective::schedule(), which keeps the objective; null: every step trains all.
/// REQUIRES: a validated section.
[[nodiscard]] std::shared_ptr<const TrainingSchedule> schedule_of(
    const configs::ObjectiveSection& section);

// The maker of every objective of configs/objective_list.hpp, defined in the file that is named
// for it, those of pairs in pair_objective.cpp.
// REQUIRES: a validated section.
#define TRAIN_OBJECTIVE_MAKER(identifier, name, form, keys)         \
  [[nodiscard]] std::unique_ptr<const Objective> make_##identifier( \
      const configs::ObjectiveSection& section);
TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_MAKER)
#undef TRAIN_OBJECTIVE_MAKER

}  // namespace train::engine
