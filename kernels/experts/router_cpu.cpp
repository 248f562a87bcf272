#include <algorithm>

#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.hpp"

namespace train::kernels::cpu {
namespace {

/// Elements of an ordinary kernel's row that take as long as one expert of a router's.
constexpr std::int64_t kExpertElements = 16;

/// Added to the sum of the chosen sigmoids (DeepSeek-AI 2024).
constexpr float kLeastSum = 1e-20F;

/// The largest of all keys that were added, at most `count`, the largest first. An equal one stays
/// behind those before it.
class Largest {
 public:
  /// Borrows room for `count` of each.
  Largest(std::int32_t* numbers, float* keys, std::int64_t count)
      : numbers_(numbers), keys_(keys), count_(count) {}

  /// Adds keys[begin] to keys[end - 1], numbered by their index. REQUIRES: no NaN.
  void add(const float* keys, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (found_ < count_ || keys[i] > keys_[count_ - 1]) {
        insert(keys[i], static_cast<std::int32_t>(i));
      }
    }
  }

 private:
  /// The last one makes room, where there is none.
  void insert(float key, std::int32_t number) {
    std::int64_t at = found_ < count_ ? found_++ : count_ - 1;
    for (; at > 0 && key > keys_[at - 1]; --at) {
      keys_[at] = keys_[at - 1];
      numbers_[at] = numbers_[at - 1];
    }
    keys_[at] = key;
    numbers_[at] = number;
  }

  std::int32_t* numbers_;
  float* keys_;
  std::int64_t count_;
  std::int64_t found_ = 0;
};

/// Scratch memory of one row's choice.
struct ChoiceRow {
  float *scores, *choice_scores;      ///< [experts].
  float* best;                        ///< [slots].
  float *group_scores, *best_groups;  ///< [groups], [kept_groups].
  std::int32_t* kept;                 ///< [kept_groups].

  ChoiceRow(Scratch& scratch, const RouterForwardParams& p)
      : scores(scratch.get<float>(2 * (p.experts + p.kept_groups) + p.slots + p.groups)),
        choice_scores(scores + p.experts),
        best(choice_scores + p.experts),
        group_scores(best + p.slots),
        best_groups(group_scores + p.groups),
        kept(reinterpret_cast<std::int32_t*>(best_groups + p.kept_groups)) {}
};

/// Adds the experts of the best groups, rising, so that equal ones keep the order of their numbers.
void add_best_groups(const RouterForwardParams& p, const ChoiceRow& row, Largest& largest) {
  const std::int64_t size = p.experts / p.groups;
  for (std::int64_t group = 0; group < p.groups; ++group) {
    row.group_scores[group] = router_group_score(row.choice_scores + group * size, size);
  }
  Largest(row.kept, row.best_groups, p.kept_groups).add(row.group_scores, 0, p.groups);
  std::sort(row.kept, row.kept + p.kept_groups);
  std::for_each_n(row.kept, p.kept_groups, [&](std::int32_t group) {
    largest.add(row.choice_scores, group * size, (group + 1) * size);
  });
}

/// 1 / (1 + exp(-x)), rounded once: the weight of a sigmoid that is not normalised.
float sigmoid(float x) {
  return static_cast<float>(1.0 / (1.0 + fixed::exp(-static_cast<double>(x))));
}

/// Weights of the chosen experts from the scores of all.
void weigh(const RouterForwardParams& p, const float* logits, const float* scores,
           const std::int32_t* chosen, float* weights) {
  float sum = 0.0F;
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    weights[slot] = scores[chosen[slot]];
    sum += weights[slot];
  }
  const bool exact = p.kind == RouterKind::sigmoid;
  const float divisor = p.kind == RouterKind::softmax_normalised   ? sum
                        : p.kind == RouterKind::sigmoid_normalised ? sum + kLeastSum
                                                                   : 1.0F;
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    const float weight = exact ? sigmoid(logits[chosen[slot]]) : weights[slot] / divisor;
    weights[slot] = weight * p.scale;
  }
}

void choose(const RouterForwardParams& p, std::int64_t at) {
  static thread_local Scratch scratch;
  const ChoiceRow row(scratch, p);
  const float* logits = p.logits + at * p.experts;
  std::int32_t* chosen = p.chosen + at * p.slots;
  if (is_sigmoid(p.kind)) {
    router_sigmoids(logits, p.experts, row.scores);
  } else {
    router_probabilities(logits, p.experts, row.scores);
  }
  router_choice_scores(row.scores, p.bias, p.experts, row.choice_scores);
  Largest largest(chosen, row.best, p.slots);
  if (p.groups > 1) {
    add_best_groups(p, row, largest);
  } else {
    largest.add(row.choice_scores, 0, p.experts);
  }
  weigh(p, logits, row.scores, chosen, p.weights + at * p.slots);
}

/// One row of a backward pass.
struct GradientRow {
  const float *logits, *weights, *dweights;
  const std::int32_t* chosen;
  float* dlogits;
  std::int64_t group;  ///< -1: not balanced.

  GradientRow(const RouterBackwardParams& p, std::int64_t row)
      : logits(p.logits + row * p.experts),
        weights(p.weights + row * p.slots),
        dweights(p.dweights + row * p.slots),
        chosen(p.chosen + row * p.slots),
        dlogits(p.dlogits + row * p.experts),
        group(p.groups == nullptr ? 0 : p.groups[row]) {
    if (p.factors == nullptr && p.z_factor == nullptr) {
      group = -1;
    }
  }
};

/// Adds p_e (factor_e - sum of p factor + z), times the complement 1 - s_e where there are any.
void add_balance(const RouterBackwardParams& p, const GradientRow& row, const float* factors,
                 double z, const float* probabilities, const float* complements) {
  double mean = 0.0;
  for (std::int64_t e = 0; factors != nullptr && e < p.experts; ++e) {
    mean += static_cast<double>(probabilities[e]) * static_cast<double>(factors[e]);
  }
  for (std::int64_t e = 0; e < p.experts; ++e) {
    const double factor = factors == nullptr ? 0.0 : static_cast<double>(factors[e]);
    const float slope = static_cast<float>(factor - mean + z);
    const float of_expert = probabilities[e] * slope;
    row.dlogits[e] += complements == nullptr ? of_expert : of_expert * complements[e];
  }
}

double z_slope(const RouterBackwardParams& p, double lse) {
  return p.z_factor == nullptr ? 0.0 : 2.0 * static_cast<double>(*p.z_factor) * lse;
}

/// Sum of the unscaled weights times their gradients.
float mean_gradient(const RouterBackwardParams& p, const GradientRow& row) {
  float mean = 0.0F;
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    mean += row.weights[slot] / p.scale * row.dweights[slot];
  }
  return mean;
}

void differentiate_softmax(const RouterBackwardParams& p, const GradientRow& row) {
  static thread_local Scratch scratch;
  auto* probabilities = scratch.get<float>(p.experts);
  const double lse = router_probabilities(row.logits, p.experts, probabilities);
  // The gradient at a chosen expert is w_j (g_j - mean) for both kinds: w_j is p_j of `softmax`.
  const float mean = mean_gradient(p, row);
  const bool of_all = p.kind == RouterKind::softmax;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    row.dlogits[e] = of_all ? -(probabilities[e] * mean) * p.scale : 0.0F;
  }
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    row.dlogits[row.chosen[slot]] = row.weights[slot] * (row.dweights[slot] - mean);
  }
  if (row.group >= 0) {
    const float* factors = p.factors == nullptr ? nullptr : p.factors + row.group * p.experts;
    add_balance(p, row, factors, z_slope(p, lse), probabilities, nullptr);
  }
}

void differentiate_sigmoids(const RouterBackwardParams& p, const GradientRow& row) {
  static thread_local Scratch scratch;
  auto* sigmoids = scratch.get<float>(2 * p.experts);
  float* complements = sigmoids + p.experts;
  std::fill_n(row.dlogits, p.experts, 0.0F);
  if (p.kind == RouterKind::sigmoid) {
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      const float weight = row.weights[slot];
      row.dlogits[row.chosen[slot]] = row.dweights[slot] * (weight * (1.0F - weight / p.scale));
    }
  } else {
    const float mean = mean_gradient(p, row);
    std::transform(row.chosen, row.chosen + p.slots, sigmoids,
                   [&](std::int32_t expert) { return row.logits[expert]; });
    router_sigmoids(sigmoids, p.slots, sigmoids, complements);
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      row.dlogits[row.chosen[slot]] =
          row.weights[slot] * complements[slot] * (row.dweights[slot] - mean);
    }
  }
  if (row.group >= 0 && p.factors != nullptr) {
    router_sigmoids(row.logits, p.experts, sigmoids, complements);
    router_shares(sigmoids, p.experts, sigmoids);
    add_balance(p, row, p.factors + row.group * p.experts, 0.0, sigmoids, complements);
  }
  if (row.group >= 0 && p.z_factor != nullptr) {
    const double lse = router_probabilities(row.logits, p.experts, sigmoids);
    add_balance(p, row, nullptr, z_slope(p, lse), sigmoids, nullptr);
  }
}

}  // namespace

void router_forward(const RouterForwardParams& p, int threads) {
  each_row(threads, p.rows, p.experts * kExpertElements, [&](std::int64_t row) { choose(p, row); });
}

void router_backward(const RouterBackwardParams& p, int threads) {
  each_row(threads, p.rows, p.experts * kExpertElements, [&](std::int64_t at) {
    const GradientRow row(p, at);
    if (is_sigmoid(p.kind)) {
      differentiate_sigmoids(p, row);
    } else {
      differentiate_softmax(p, row);
    }
  });
}

}  // namespace train::kernels::cpu
