#pragma once

#include <cstdint>
#include <vector>

// Sequential unlearning as pure functions: which layer a step trains, how its two losses weigh, and
// what the host computes of them, in double.
namespace train::engine {

/// The layers that are trained one after the other, from back to front, each for as many steps.
struct UnlearningPhases {
  std::int64_t first_layer = 31;  ///< The deepest.
  std::int64_t last_layer = 8;    ///< None below it.
  std::int64_t stride = 4;
  std::int64_t examples = 0;  ///< Examples of each stream per phase; 1 or more.
  std::int64_t batch = 32;    ///< Examples of each stream per step; 1 or more.

  /// In the order of training. REQUIRES: last_layer <= first_layer, stride > 0.
  [[nodiscard]] std::vector<std::int64_t> layers() const;
  [[nodiscard]] std::int64_t steps_per_phase() const { return (examples + batch - 1) / batch; }
  [[nodiscard]] std::int64_t steps() const;
};

/// Place of step `step` (from 0) in its phase. REQUIRES: one of steps().
struct UnlearningPlace {
  std::int64_t layer = 0;
  std::int64_t examples_seen = 0;  ///< In the phase, before the step.
};
[[nodiscard]] UnlearningPlace unlearning_place(const UnlearningPhases& phases, std::int64_t step);

/// Factors of the two losses. With s the share of the phase's examples that were seen, at most 1:
///   retain  c (0.25 + 0.75 s), or c s from zero
///   forget  c (1 - 0.25 s), times 1 + (layer_scale - 1) (first_layer - layer) / first_layer if
///           layer_scale is above 1
struct UnlearningFactors {
  double retain = 20.0;
  double forget = 5.0;
  bool ramp_retain_from_zero = false;
  double forget_layer_scale = 1.0;
};
struct LossFactors {
  double retain = 0.0;
  double forget = 0.0;
};
[[nodiscard]] LossFactors loss_factors(const UnlearningFactors& factors,
                                       const UnlearningPhases& phases,
                                       const UnlearningPlace& place);

/// A loss of one number, and its derivative.
struct ScalarLoss {
  double loss = 0.0;
  double by_value = 0.0;
};
/// NPO: -log s(-beta r) of r, the mean over a sequence's targets of log p - log p0. No factor 2 /
/// beta.
[[nodiscard]] ScalarLoss npo_loss(double ratio, double beta);

}  // namespace train::engine
