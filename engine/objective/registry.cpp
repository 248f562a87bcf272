#include "engine/objective/registry.hpp"

#include <functional>
#include <map>
#include <span>

#include "base/check.hpp"

namespace train::engine {
namespace {

using Makers = std::map<std::string, ObjectiveMaker, std::less<>>;

Makers& makers() {
#define TRAIN_OBJECTIVE_ENTRY(identifier, name, form, keys) {name, make_##identifier},
  static Makers all = {TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_ENTRY)};
#undef TRAIN_OBJECTIVE_ENTRY
  return all;
}

}  // namespace

void add_objective(const std::string& name, ObjectiveMaker make) { makers()[name] = make; }

std::unique_ptr<const Objective> make_objective(const configs::ObjectiveSection& section) {
  const auto found = makers().find(section.name);
  TRAIN_CHECK(found != makers().end(), "objective \"{}\"", section.name);
  return found->second(section);
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
