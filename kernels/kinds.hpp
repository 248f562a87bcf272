#pragma once

#include <cstdint>

// Variants of kernels that a model or an objective selects, apart from the kernels' params, so that
// their users do not depend on those.
namespace train::kernels {

enum class NormKind : std::uint8_t {
  layer,  ///< y = (x - mean) * rstd * w, rstd = 1/sqrt(var + eps) (biased variance). Ba et al.
          ///< 2016, no bias.
  rms,    ///< y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps). Zhang & Sennrich 2019.
};

enum class RopePairing : std::uint8_t {
  interleaved,  ///< (2i, 2i + 1), as in Su et al. 2021.
  half,         ///< (i, i + head_dim / 2), as in most published weights.
};

enum class ActivationKind : std::uint8_t {
  silu,       ///< x sigmoid(x).
  gelu,       ///< x Phi(x), exact.
  gelu_tanh,  ///< x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
  relu,
  /// With `up` alone: (clamp(up, -limit, limit) + 1) a sigmoid(alpha a), a = min(x, limit)
  /// (GPT-OSS).
  clamped_swiglu,
};

/// Scores of a router's logits, p = softmax(logits) or s = sigmoid(logits), and weights of the
/// chosen experts, before RouterForwardParams::scale.
enum class RouterKind : std::uint8_t {
  softmax,             ///< w_j = p_j.
  softmax_normalised,  ///< w_j = p_j / sum of the chosen p.
  sigmoid,             ///< w_j = s_j.
  sigmoid_normalised,  ///< w_j = s_j / (sum of the chosen s + 1e-20) (DeepSeek-AI 2024).
};

/// A loss that balances the loads of experts (BalanceParams has the formulas).
enum class BalanceKind : std::uint8_t {
  hf,           ///< transformers' load_balancing_loss_func: pooled over layers; k where uniform.
  switch_loss,  ///< By layer (Fedus et al. 2021, https://arxiv.org/abs/2101.03961); 1 where
                ///< uniform.
  z,            ///< Mean squared logsumexp of the logits (Zoph et al. 2022).
};

/// The rows whose choices a balancing loss counts.
enum class BalanceScope : std::uint8_t {
  lane,           ///< All of the lane.
  sequence,       ///< Each document's.
  previous_step,  ///< All of the step before.
  step,           ///< All of this step.
};

/// Row loss that replaces the cross-entropy (HeadLossParams).
enum class RowLoss : std::uint8_t {
  cross_entropy,
  divergence,  ///< sum p0 (log p0 - log p), p0 the softmax of the same row of `reference_x`.
  /// lse minus the mean of the `top_k` largest z (ties: first ones win): cross-entropy of the
  /// softmax over them with the uniform distribution over them. All other logits are ignored and
  /// have no gradient.
  top_entropy,
};

}  // namespace train::kernels
