#include "engine/objective/unlearning.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "base/fixed_math.hpp"
#include "engine/philox.hpp"

namespace train::engine {
namespace {

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) {
    sum += fixed::exp(logit - largest);
  }
  return largest + fixed::log(sum);
}

std::vector<double> softmax(std::span<const double> logits) {
  const double lse = log_sum_exp(logits);
  std::vector<double> p;
  for (const double logit : logits) {
    p.push_back(fixed::exp(logit - lse));
  }
  return p;
}

LogitLoss divided(LogitLoss loss, double by) {
  loss.loss /= by;
  for (double& each : loss.by_logits) {
    each /= by;
  }
  return loss;
}

/// Cross-entropy with the uniform distribution.
LogitLoss uniform_loss(std::span<const double> logits) {
  const auto count = static_cast<double>(logits.size());
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
  LogitLoss loss{.loss = log_sum_exp(logits) - sum / count, .by_logits = softmax(logits)};
  for (double& each : loss.by_logits) {
    each -= 1.0 / count;
  }
  return loss;
}

/// Ids of the k largest, ascending.
std::vector<std::size_t> largest_ids(std::span<const double> logits, std::size_t k) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  ids.resize(k);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

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

LogitLoss nll_loss(std::span<const double> logits, std::int32_t target) {
  const auto id = static_cast<std::size_t>(target);
  LogitLoss loss{.loss = log_sum_exp(logits) - logits[id], .by_logits = softmax(logits)};
  loss.by_logits[id] -= 1.0;
  return loss;
}

LogitLoss kl_loss(std::span<const double> logits, std::span<const double> reference) {
  TRAIN_CHECK(logits.size() == reference.size());
  const double lse = log_sum_exp(logits);
  const double reference_lse = log_sum_exp(reference);
  LogitLoss loss{.loss = 0.0, .by_logits = softmax(logits)};
  for (std::size_t v = 0; v < logits.size(); ++v) {
    const double log_p0 = reference[v] - reference_lse;
    const double p0 = fixed::exp(log_p0);
    loss.loss += p0 * (log_p0 - (logits[v] - lse));
    loss.by_logits[v] -= p0;
  }
  return loss;
}

LogitLoss random_target_loss(std::span<const double> logits, std::int32_t target) {
  return divided(nll_loss(logits, target), fixed::log(static_cast<double>(logits.size())));
}

LogitLoss max_entropy_loss(std::span<const double> logits) {
  return divided(uniform_loss(logits), fixed::log(static_cast<double>(logits.size())));
}

LogitLoss top_k_entropy_loss(std::span<const double> logits, std::int64_t k) {
  TRAIN_CHECK(k > 1 && k <= static_cast<std::int64_t>(logits.size()), "{} of {} logits", k,
              logits.size());
  const std::vector<std::size_t> ids = largest_ids(logits, static_cast<std::size_t>(k));
  std::vector<double> chosen;
  for (const std::size_t id : ids) {
    chosen.push_back(logits[id]);
  }
  const LogitLoss among = divided(uniform_loss(chosen), fixed::log(static_cast<double>(k)));
  LogitLoss loss{.loss = among.loss, .by_logits = std::vector<double>(logits.size(), 0.0)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    loss.by_logits[ids[i]] = among.by_logits[i];
  }
  return loss;
}

ScalarLoss npo_loss(double ratio, double beta) {
  const double x = beta * ratio;
  // log(1 + e^x) without overflow.
  const double loss = std::max(x, 0.0) + fixed::log1p(fixed::exp(-std::abs(x)));
  return {.loss = loss, .by_value = beta / (1.0 + fixed::exp(-x))};
}

LogitLoss hidden_distance(std::span<const double> hidden, std::span<const double> frozen) {
  TRAIN_CHECK(hidden.size() == frozen.size());
  double squares = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    squares += (hidden[i] - frozen[i]) * (hidden[i] - frozen[i]);
  }
  LogitLoss loss{.loss = std::sqrt(squares), .by_logits = std::vector<double>(hidden.size(), 0.0)};
  for (std::size_t i = 0; i < hidden.size() && squares > 0.0; ++i) {
    loss.by_logits[i] = (hidden[i] - frozen[i]) / loss.loss;
  }
  return loss;
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

std::int64_t join_gradients(GradientJoin join, std::span<float> retain,
                            std::span<const float> forget) {
  TRAIN_CHECK(retain.size() == forget.size());
  std::int64_t agreeing = 0;
  for (std::size_t i = 0; i < retain.size(); ++i) {
    const float r = retain[i];
    const float f = forget[i];
    const bool agree = (r > 0.0F && f > 0.0F) || (r < 0.0F && f < 0.0F);
    agreeing += agree ? 1 : 0;
    if (agree || join == GradientJoin::sum) {
      retain[i] = r + f;
    } else if (join == GradientJoin::symmetric) {
      retain[i] = 0.0F;
    }
  }
  return agreeing;
}

}  // namespace train::engine
