#include "engine/objective/preference_loss.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/math/fixed_math.hpp"

namespace train::engine {
namespace {

using Options = PreferenceOptions;
using Pair = PairLogProbs;

double logistic(double x) {
  // exp() of a number that is not positive: never infinite.
  const double e = fixed::exp(-std::abs(x));
  return x >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

/// log s(x).
double log_logistic(double x) { return std::min(x, 0.0) - fixed::log1p(fixed::exp(-std::abs(x))); }

/// The derivative of s.
double logistic_slope(double x) { return logistic(x) * logistic(-x); }

/// Value and derivative of a function of one number.
struct Slope {
  double value;
  double by_u;
};

Slope smoothed(double u, double smoothing) {
  const double right = 1.0 - smoothing;
  return {-right * log_logistic(u) - smoothing * log_logistic(-u),
          -right * logistic(-u) + smoothing * logistic(u)};
}

/// A loss of u = b (D_c - D_r).
PairLoss of_ratios(const Options& options, Slope loss) {
  return {.loss = loss.value,
          .by_chosen = options.beta * loss.by_u,
          .by_rejected = -options.beta * loss.by_u};
}

double margin_of(const Options& options, const Pair& pair) {
  return options.beta * (pair.chosen.ratio() - pair.rejected.ratio());
}

/// A loss of the difference of two means over tokens.
PairLoss of_means(const Pair& pair, Slope loss) {
  return {.loss = loss.value,
          .by_chosen = loss.by_u / pair.chosen.tokens,
          .by_rejected = -loss.by_u / pair.rejected.tokens};
}

PairLoss sigmoid(const Options& options, const Pair& pair) {
  return of_ratios(options, smoothed(margin_of(options, pair), options.label_smoothing));
}

PairLoss dpo_norm(const Options& options, const Pair& pair) {
  const double difference = pair.chosen.mean_ratio() - pair.rejected.mean_ratio();
  const Slope loss = smoothed(options.beta * difference, options.label_smoothing);
  return of_means(pair, {loss.value, options.beta * loss.by_u});
}

PairLoss robust(const Options& options, const Pair& pair) {
  const double u = margin_of(options, pair);
  const double wrong = options.label_smoothing;
  const double scale = 1.0 / (1.0 - 2.0 * wrong);
  return of_ratios(options, {scale * (-(1.0 - wrong) * log_logistic(u) + wrong * log_logistic(-u)),
                             scale * (-(1.0 - wrong) * logistic(-u) - wrong * logistic(u))});
}

PairLoss hinge(const Options& options, const Pair& pair) {
  const double u = margin_of(options, pair);
  return of_ratios(options, {std::max(0.0, 1.0 - u), u < 1.0 ? -1.0 : 0.0});
}

PairLoss ipo(const Options& options, const Pair& pair) {
  const double x =
      pair.chosen.mean_ratio() - pair.rejected.mean_ratio() - 1.0 / (2.0 * options.beta);
  return of_means(pair, {x * x, 2.0 * x});
}

PairLoss simpo(const Options& options, const Pair& pair) {
  const double difference = pair.chosen.mean() - pair.rejected.mean() - options.gamma_beta_ratio;
  const double u = options.beta * difference;
  return of_means(pair, {-log_logistic(u), -options.beta * logistic(-u)});
}

PairLoss wpo(const Options& options, const Pair& pair) {
  const double weight = fixed::exp(pair.chosen.certainty + pair.rejected.certainty);
  const Slope loss = smoothed(margin_of(options, pair), options.label_smoothing);
  return of_ratios(options, {weight * loss.value, weight * loss.by_u});
}

/// 1 - exp m of a mean log-probability; fp32's spacing below 1 at least, where a model is certain.
double complement(double mean) { return std::max(-fixed::expm1(mean), 0x1p-24); }

PairLoss orpo(const Options& options, const Pair& pair) {
  const double chosen = complement(pair.chosen.mean());
  const double rejected = complement(pair.rejected.mean());
  const double odds =
      pair.chosen.mean() - pair.rejected.mean() - fixed::log(chosen) + fixed::log(rejected);
  const double by_odds = -options.beta * logistic(-odds);
  return {.loss = -pair.chosen_with_prompt.mean() - options.beta * log_logistic(odds),
          .by_chosen = by_odds / chosen / pair.chosen.tokens,
          .by_rejected = -by_odds / rejected / pair.rejected.tokens,
          .by_chosen_with_prompt = -1.0 / pair.chosen_with_prompt.tokens};
}

PairLoss exo_pair(const Options& options, const Pair& pair) {
  const double u = margin_of(options, pair);
  const double wrong = options.label_smoothing;
  const double q = logistic(u);
  const double right_part = q * (log_logistic(u) - fixed::log1p(-wrong));
  const double wrong_part = logistic(-u) * (log_logistic(-u) - fixed::log(wrong));
  return of_ratios(options, {right_part + wrong_part,
                             logistic_slope(u) * (u - fixed::log1p(-wrong) + fixed::log(wrong))});
}

PairLoss nca_pair(const Options& options, const Pair& pair) {
  const double chosen = options.beta * pair.chosen.ratio();
  const double rejected = options.beta * pair.rejected.ratio();
  return {
      .loss = -log_logistic(chosen) - 0.5 * log_logistic(-chosen) - 0.5 * log_logistic(-rejected),
      .by_chosen = options.beta * (0.5 * logistic(chosen) - logistic(-chosen)),
      .by_rejected = 0.5 * options.beta * logistic(rejected)};
}

PairLoss bco_pair(const Options& options, const Pair& pair) {
  const double chosen = options.beta * pair.chosen.ratio();
  const double rejected = options.beta * pair.rejected.ratio();
  return {.loss = -log_logistic(chosen) - log_logistic(-rejected),
          .by_chosen = -options.beta * logistic(-chosen),
          .by_rejected = options.beta * logistic(rejected)};
}

PairLoss sppo_hard(const Options& options, const Pair& pair) {
  const double goal = 1.0 / (2.0 * options.beta);
  const double chosen = pair.chosen.ratio() - goal;
  const double rejected = pair.rejected.ratio() + goal;
  return {.loss = chosen * chosen + rejected * rejected,
          .by_chosen = 2.0 * chosen,
          .by_rejected = 2.0 * rejected};
}

PairLoss apo_zero(const Options& options, const Pair& pair) {
  const double chosen = options.beta * pair.chosen.ratio();
  const double rejected = options.beta * pair.rejected.ratio();
  return {.loss = logistic(-chosen) + logistic(rejected),
          .by_chosen = -options.beta * logistic_slope(chosen),
          .by_rejected = options.beta * logistic_slope(rejected)};
}

PairLoss apo_down(const Options& options, const Pair& pair) {
  const double chosen = options.beta * pair.chosen.ratio();
  const double u = margin_of(options, pair);
  return {.loss = logistic(chosen) + logistic(-u),
          .by_chosen = options.beta * (logistic_slope(chosen) - logistic_slope(u)),
          .by_rejected = options.beta * logistic_slope(u)};
}

PairLoss discopop(const Options& options, const Pair& pair) {
  const double u = margin_of(options, pair);
  const double share = logistic(u / options.discopop_tau);
  const double exponential = fixed::exp(-u);
  const double slope = logistic_slope(u / options.discopop_tau) / options.discopop_tau;
  return of_ratios(options, {-(1.0 - share) * log_logistic(u) + share * exponential,
                             slope * (log_logistic(u) + exponential) -
                                 (1.0 - share) * logistic(-u) - share * exponential});
}

PairLoss sft(const Options& /*options*/, const Pair& pair) {
  return {.loss = -pair.chosen.mean(), .by_chosen = -1.0 / pair.chosen.tokens};
}

constexpr auto kLosses = std::to_array<PreferenceLoss>({{"sigmoid", true, sigmoid},
                                                        {"dpo_norm", true, dpo_norm},
                                                        {"robust", true, robust},
                                                        {"hinge", true, hinge},
                                                        {"ipo", true, ipo},
                                                        {"simpo", false, simpo},
                                                        {"wpo", true, wpo, true},
                                                        {"orpo", false, orpo, false, true},
                                                        {"exo_pair", true, exo_pair},
                                                        {"nca_pair", true, nca_pair},
                                                        {"bco_pair", true, bco_pair},
                                                        {"sppo_hard", true, sppo_hard},
                                                        {"apo_zero", true, apo_zero},
                                                        {"apo_down", true, apo_down},
                                                        {"discopop", true, discopop},
                                                        {"sft", false, sft}});

}  // namespace

std::span<const PreferenceLoss> preference_losses() { return kLosses; }

const PreferenceLoss* find_preference_loss(std::string_view name) {
  const auto* const found =
      std::find_if(kLosses.begin(), kLosses.end(),
                   [&](const PreferenceLoss& loss) { return loss.name == name; });
  return found == kLosses.end() ? nullptr : found;
}

PairLoss kto_loss(const PreferenceOptions& options, bool desirable, double ratio, double baseline) {
  const double sign = desirable ? 1.0 : -1.0;
  const double weight = desirable ? options.desirable_weight : options.undesirable_weight;
  const double u = sign * options.beta * (ratio - baseline);
  return {.loss = weight * logistic(-u),
          .by_chosen = -sign * weight * options.beta * logistic_slope(u)};
}

namespace {

PairMetrics compared(PairMetrics metrics) {
  metrics.margin = metrics.reward_chosen - metrics.reward_rejected;
  metrics.accuracy = metrics.reward_chosen > metrics.reward_rejected ? 1.0 : 0.0;
  return metrics;
}

}  // namespace

PairMetrics pair_metrics(const PreferenceOptions& options, const PairLogProbs& pair) {
  return compared({.log_prob_chosen = pair.chosen.policy,
                   .log_prob_rejected = pair.rejected.policy,
                   .reward_chosen = options.beta * pair.chosen.ratio(),
                   .reward_rejected = options.beta * pair.rejected.ratio()});
}

PairMetrics mean_metrics(const PreferenceOptions& options, const PairLogProbs& pair) {
  return compared({.log_prob_chosen = pair.chosen.mean(),
                   .log_prob_rejected = pair.rejected.mean(),
                   .reward_chosen = options.beta * pair.chosen.mean(),
                   .reward_rejected = options.beta * pair.rejected.mean()});
}

}  // namespace train::engine
