#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace train::run {

/// Loads of experts in one step, by layer: choices of each relative to the mean, 1 where all are
/// chosen equally often. Where a bias corrects the choice, its smallest and largest element in each
/// such layer.
struct ExpertLoads {
  std::vector<std::vector<double>> layers = {};
  std::vector<std::array<double, 2>> biases = {};

  [[nodiscard]] bool empty() const { return layers.empty(); }
  /// Figures of all layers, by the names of metrics: largest and smallest load, experts that no row
  /// chose, and the mean entropy of a layer's shares over that of equal ones (1: equal); the
  /// smallest and largest bias, if there is one.
  [[nodiscard]] std::vector<std::pair<std::string, double>> figures() const;
  /// Rounded to thousandths: [[1.204, 0.8, ...], ...].
  [[nodiscard]] std::vector<std::vector<double>> rounded() const;
};

/// Takes the metrics called "expert_load/<layer>/<expert>", "expert_bias_min/<layer>" and
/// "expert_bias_max/<layer>" (engine::ExpertsSpec::sums()), which come layer by layer, out of
/// `metrics`.
[[nodiscard]] ExpertLoads take_expert_loads(std::vector<std::pair<std::string, double>>& metrics);

}  // namespace train::run
