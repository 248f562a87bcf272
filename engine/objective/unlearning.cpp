#include "engine/objective/unlearning.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"

namespace train::engine {

std::vector<std::int64_t> UnlearningPhases::layers() const {
  TRAIN_CHECK(last_layer <= first_layer && stride > 0, "layers {} to {} by {}", first_layer,
              last_layer, stride);
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = first_layer; layer >= last_layer; layer -= stride) {
    layers.push_back(layer);
  }
  return layers;
}

std::int64_t UnlearningPhases::steps() const {
  return steps_per_phase() * static_cast<std::int64_t>(layers().size());
}

UnlearningPlace unlearning_place(const UnlearningPhases& phases, std::int64_t step) {
  TRAIN_CHECK(phases.examples > 0 && phases.batch > 0 && step >= 0 && step < phases.steps(),
              "step {} of {}", step, phases.steps());
  const std::int64_t of_phase = phases.steps_per_phase();
  return {.layer = phases.layers()[static_cast<std::size_t>(step / of_phase)],
          .examples_seen = step % of_phase * phases.batch};
}

LossFactors loss_factors(const UnlearningFactors& factors, const UnlearningPhases& phases,
                         const UnlearningPlace& place) {
  const double share = std::min(
      1.0, static_cast<double>(place.examples_seen) / static_cast<double>(phases.examples));
  const double retain = factors.ramp_retain_from_zero ? share : 0.25 + 0.75 * share;
  double forget = 1.0 - 0.25 * share;
  if (factors.forget_layer_scale > 1.0) {
    const auto above = static_cast<double>(phases.first_layer - place.layer);
    const auto first = static_cast<double>(std::max<std::int64_t>(phases.first_layer, 1));
    forget *= 1.0 + (factors.forget_layer_scale - 1.0) * above / first;
  }
  return {.retain = factors.retain * retain, .forget = factors.forget * forget};
}

ScalarLoss npo_loss(double ratio, double beta) {
  const double x = beta * ratio;
  // log(1 + e^x) without overflow.
  const double loss = std::max(x, 0.0) + fixed::log1p(fixed::exp(-std::abs(x)));
  return {.loss = loss, .by_value = beta / (1.0 + fixed::exp(-x))};
}

}  // namespace train::engine
