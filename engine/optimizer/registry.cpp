#include "engine/optimizer/registry.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "engine/optimizer/optimizers.hpp"

namespace train::engine {
namespace {

#define TRAIN_OPTIMIZER_ENTRY(identifier, name, keys) {name, make_##identifier},
constexpr auto kOptimizers =
    std::to_array<RegisteredOptimizer>({TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_ENTRY)});
#undef TRAIN_OPTIMIZER_ENTRY

}  // namespace

std::span<const RegisteredOptimizer> registered_optimizers() { return kOptimizers; }

std::unique_ptr<Optimizer> make_optimizer(const configs::OptimizerSection& section,
                                          std::int64_t run_steps) {
  const auto* const found = std::find_if(
      kOptimizers.begin(), kOptimizers.end(),
      [&](const RegisteredOptimizer& optimizer) { return optimizer.name == section.name; });
  TRAIN_CHECK(found != kOptimizers.end(), "optimizer \"{}\"", section.name);
  return found->make(section, run_steps);
}

std::vector<std::string> whole_parameters(const Optimizer& optimizer,
                                          std::span<const UnitParameters> units) {
  std::vector<std::string> names;
  for (const UnitParameters& unit : units) {
    for (const Parameter& parameter : unit.parameters) {
      if (optimizer.whole(parameter)) {
        names.push_back(parameter.name);
      }
    }
  }
  return names;
}

}  // namespace train::engine
