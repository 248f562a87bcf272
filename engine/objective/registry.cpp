#include "engine/objective/registry.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.hpp"

namespace train::engine {
namespace {

struct RegisteredObjective {
  std::string_view name;
  std::unique_ptr<const Objective> (*make)(const configs::ObjectiveSection& section);
};

#define TRAIN_OBJECTIVE_ENTRY(identifier, name, form, keys) {name, make_##identifier},
constexpr auto kObjectives =
    std::to_array<RegisteredObjective>({TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_ENTRY)});
#undef TRAIN_OBJECTIVE_ENTRY

}  // namespace

std::unique_ptr<const Objective> make_objective(const configs::ObjectiveSection& section) {
  const auto* const found = std::find_if(
      kObjectives.begin(), kObjectives.end(),
      [&](const RegisteredObjective& objective) { return objective.name == section.name; });
  TRAIN_CHECK(found != kObjectives.end(), "objective \"{}\"", section.name);
  return found->make(section);
}

std::vector<std::string> Objective::metric_names() const {
  const auto names =
      weighting() == nullptr ? std::span<const std::string_view>() : weighting()->metrics();
  return {names.begin(), names.end()};
}

std::shared_ptr<const TrainingSchedule> schedule_of(const configs::ObjectiveSection& section) {
  const std::shared_ptr<const Objective> objective = make_objective(section);
  return {objective, objective->schedule()};
}

}  // namespace train::engine
