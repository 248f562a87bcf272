#include "engine/objective/unlearning.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/fixed_math.hpp"
#include "engine/philox.hpp"

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

std::int32_t drawn_target(std::uint64_t seed, std::int64_t step, std::int64_t row,
                          std::int64_t vocab) {
  // The key tells steps apart, the position rows; a product of 64 bits is uniform to one part in
  // 2^64 / vocab.
  const auto of_step = philox_at(seed, static_cast<std::uint64_t>(step), RandomDomain::unlearning);
  const std::uint64_t key = (static_cast<std::uint64_t>(of_step[0]) << 32U) | of_step[1];
  const auto words = philox_at(key, static_cast<std::uint64_t>(row), RandomDomain::unlearning);
  const std::uint64_t high =
      static_cast<std::uint64_t>(words[0]) * static_cast<std::uint64_t>(vocab);
  const std::uint64_t low =
      (static_cast<std::uint64_t>(words[1]) * static_cast<std::uint64_t>(vocab)) >> 32U;
  return static_cast<std::int32_t>((high + low) >> 32U);
}

}  // namespace train::engine
