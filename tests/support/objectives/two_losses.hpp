#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/objective/registry.hpp"

namespace train::engine::testing {

/// Objective for tests, as the shortest example of one with passes (engine/README.md): the
/// cross-entropy on the rows of data.dir, and in a second pass coefficient times the label-smoothed
/// cross-entropy on those of data.forget_dir. The coefficient is objective.beta; both gradients are
/// summed.
class TwoLosses final : public Objective {
 public:
  explicit TwoLosses(const configs::ObjectiveSection& section) : section_(section) {}

  [[nodiscard]] RowKind rows() const override { return RowKind::documents; }
  [[nodiscard]] LaneColumns columns() const override {
    return {.positions = true, .weights = true};
  }
  [[nodiscard]] std::vector<Pass> passes(std::int64_t /*step*/) const override {
    const HeadLoss smoothed{.label_smoothing = static_cast<float>(section_.label_smoothing)};
    return {{}, {.coefficient = section_.beta, .head = smoothed}};
  }
  [[nodiscard]] std::vector<std::string> metric_names() const override {
    return {"plain_loss", "smoothed_loss", "agreement"};
  }
  [[nodiscard]] std::vector<double> metric_values(std::int64_t /*step*/,
                                                  std::span<const PassOutcome> passes,
                                                  const SignAgreement& agreement,
                                                  std::size_t /*first_unit*/) const override {
    return {passes[0].loss, passes[1].loss,
            static_cast<double>(agreement.agreeing) / static_cast<double>(agreement.elements)};
  }

 private:
  configs::ObjectiveSection section_;
};

/// Registers objective.name = "two_losses" in this program.
inline void add_two_losses() {
  add_objective("two_losses",
                [](const configs::ObjectiveSection& section) -> std::unique_ptr<const Objective> {
                  return std::make_unique<TwoLosses>(section);
                });
}

}  // namespace train::engine::testing
