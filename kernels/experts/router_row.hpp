#pragma once

#include <cstdint>

#include "kernels/kinds.hpp"

// Functions of a row of a router's logits. All of them accept results in place of their inputs.
namespace train::kernels::cpu {

[[nodiscard]] constexpr bool is_sigmoid(RouterKind kind) {
  return kind == RouterKind::sigmoid || kind == RouterKind::sigmoid_normalised;
}

/// Probabilities of a row of a router's logits, softmax in single precision, and log sum exp of the
/// logits. All are NaN if a logit is NaN or +Inf or all are -Inf.
double router_probabilities(const float* logits, std::int64_t experts, float* probabilities);

/// s = sigmoid(logit) and, if wanted, 1 - s without cancellation, in single precision. CUDA's have
/// the same bits, because they decide choices.
void router_sigmoids(const float* logits, std::int64_t experts, float* sigmoids,
                     float* complements = nullptr);

/// s / sum of s: the probabilities that balancing takes from sigmoids. NaN where all s are 0.
void router_shares(const float* sigmoids, std::int64_t experts, float* shares);

/// Choice scores: scores + bias, without bias the scores. NaN becomes -Inf.
void router_choice_scores(const float* scores, const float* bias, std::int64_t experts,
                          float* choice_scores);

/// Sum of the two largest of `count` choice scores; NaN becomes -Inf. REQUIRES: count > 1.
[[nodiscard]] float router_group_score(const float* choice_scores, std::int64_t count);

}  // namespace train::kernels::cpu
