#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.hpp"
#include "kernels/head/logit_row.hpp"

namespace train::kernels::cpu {
namespace {

/// Elements of an ordinary kernel's row that take as long as one expert of a router's.
constexpr std::int64_t kExpertElements = 16;

/// Inserts into the largest scores so far, `found` of at most `slots`, the largest first. An equal
/// one stays behind those before it.
void insert(const float* scores, std::int32_t expert, std::int32_t* chosen, std::int64_t found,
            std::int64_t slots) {
  const auto key = [&](std::int32_t e) {
    return std::isnan(scores[e]) ? -std::numeric_limits<float>::infinity() : scores[e];
  };
  const float own = key(expert);
  std::int64_t at = found;
  while (at > 0 && own > key(chosen[at - 1])) {
    if (at < slots) {
      chosen[at] = chosen[at - 1];
    }
    --at;
  }
  if (at < slots) {
    chosen[at] = expert;
  }
}

float sigmoid(float x) {
  return static_cast<float>(1.0 / (1.0 + fixed::exp(-static_cast<double>(x))));
}

void choose(const RouterForwardParams& p, std::int64_t row) {
  static thread_local Scratch scratch;
  auto* scores = scratch.get<float>(p.experts);
  const float* logits = p.logits + row * p.experts;
  if (p.kind == RouterKind::sigmoid) {
    std::copy_n(logits, p.experts, scores);
  } else {
    router_probabilities(logits, p.experts, scores);
  }
  std::int32_t* chosen = p.chosen + row * p.slots;
  float* weights = p.weights + row * p.slots;
  for (std::int64_t expert = 0; expert < p.experts; ++expert) {
    insert(scores, static_cast<std::int32_t>(expert), chosen, std::min(expert, p.slots), p.slots);
  }
  float sum = 0.0F;
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    weights[slot] = scores[chosen[slot]];
    sum += weights[slot];
  }
  if (p.kind == RouterKind::softmax_normalised) {
    std::transform(weights, weights + p.slots, weights, [sum](float w) { return w / sum; });
  } else if (p.kind == RouterKind::sigmoid) {
    std::transform(weights, weights + p.slots, weights, sigmoid);
  }
}

/// Adds the gradient of balancing to a row's dlogits.
void add_balance(const RouterBackwardParams& p, std::int64_t group, double lse,
                 const float* probabilities, float* dlogits) {
  const float* factors = p.factors == nullptr ? nullptr : p.factors + group * p.experts;
  double mean = 0.0;
  for (std::int64_t e = 0; factors != nullptr && e < p.experts; ++e) {
    mean += static_cast<double>(probabilities[e]) * static_cast<double>(factors[e]);
  }
  const double z = p.z_factor == nullptr ? 0.0 : 2.0 * static_cast<double>(*p.z_factor) * lse;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    const double factor = factors == nullptr ? 0.0 : static_cast<double>(factors[e]);
    dlogits[e] += probabilities[e] * static_cast<float>(factor - mean + z);
  }
}

void differentiate(const RouterBackwardParams& p, std::int64_t row) {
  const std::int32_t* chosen = p.chosen + row * p.slots;
  const float* weights = p.weights + row * p.slots;
  const float* dweights = p.dweights + row * p.slots;
  float* dlogits = p.dlogits + row * p.experts;
  if (p.kind == RouterKind::sigmoid) {
    std::fill_n(dlogits, p.experts, 0.0F);
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      dlogits[chosen[slot]] = dweights[slot] * (weights[slot] * (1.0F - weights[slot]));
    }
    return;
  }
  static thread_local Scratch scratch;
  auto* probabilities = scratch.get<float>(p.experts);
  const double lse = router_probabilities(p.logits + row * p.experts, p.experts, probabilities);
  // The gradient at a chosen expert is w_j (g_j - mean) for both kinds: w_j is p_j of `softmax`.
  float mean = 0.0F;
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    mean += weights[slot] * dweights[slot];
  }
  const bool of_all = p.kind == RouterKind::softmax;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    dlogits[e] = of_all ? -(probabilities[e] * mean) : 0.0F;
  }
  for (std::int64_t slot = 0; slot < p.slots; ++slot) {
    dlogits[chosen[slot]] = weights[slot] * (dweights[slot] - mean);
  }
  const std::int64_t group = p.groups == nullptr ? 0 : p.groups[row];
  if (group >= 0 && (p.factors != nullptr || p.z_factor != nullptr)) {
    add_balance(p, group, lse, probabilities, dlogits);
  }
}

}  // namespace

double router_probabilities(const float* logits, std::int64_t experts, float* probabilities) {
  const RowExponentials row =
      exponentiate_row(logits, experts, max_of_row(logits, experts), probabilities);
  const auto sum = static_cast<float>(row.sum);
  std::transform(probabilities, probabilities + experts, probabilities,
                 [sum](float e) { return e / sum; });
  return row.lse;
}

void router_forward(const RouterForwardParams& p, int threads) {
  each_row(threads, p.rows, p.experts * kExpertElements, [&](std::int64_t row) { choose(p, row); });
}

void router_backward(const RouterBackwardParams& p, int threads) {
  each_row(threads, p.rows, p.experts * kExpertElements,
           [&](std::int64_t row) { differentiate(p, row); });
}

}  // namespace train::kernels::cpu
