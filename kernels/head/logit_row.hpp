#pragma once

#include <cstdint>

namespace train::kernels::cpu {

// CPU functions on one row of logits, shared by the loss and the log-probabilities, so that both
// have the same bits.

/// Logits from the head's products: softcap tanh(scale product / softcap), or scale product without
/// a cap.
struct LogitShape {
  float scale = 1.0F;
  float softcap = 0.0F;

  [[nodiscard]] bool plain() const { return scale == 1.0F && softcap == 0.0F; }
};

[[nodiscard]] float max_of_row(const float* logits, std::int64_t count);

/// Computes logits = shape(products), in place if wanted; returns the largest. With `slopes` also
/// the derivatives of the cap. REQUIRES: slopes only with a cap.
float shape_row(const float* products, std::int64_t count, const LogitShape& shape, float* logits,
                float* slopes);

/// First index of `value`; -1 if absent.
[[nodiscard]] std::int64_t find_in_row(const float* logits, std::int64_t count, float value);

/// Sum of exp(logit - largest), in double over runs short enough for float sums, and log sum exp of
/// the logits. Both are NaN if a logit is NaN or +Inf or all are -Inf.
struct RowExponentials {
  double sum = 0.0;
  double lse = 0.0;
};
/// With `exponentials` also writes them, in place if wanted.
RowExponentials exponentiate_row(const float* logits, std::int64_t count, float largest,
                                 float* exponentials);

[[nodiscard]] double sum_of_row(const float* logits, std::int64_t count);

/// exponentials = (factor exponentials - uniform - at_target [at the target]) slopes: the gradient
/// of a row's loss. Slopes default to 1.
struct RowGradient {
  float factor = 0.0F;
  float uniform = 0.0F;
  float at_target = 0.0F;
  std::int64_t target = 0;
};
void gradient_of_row(float* exponentials, const float* slopes, std::int64_t count,
                     const RowGradient& row);

/// Bitwise equal to exponentiate_row(), plus, with e = exp(logit - largest), the sums of e^2 and of
/// e (logit - largest).
struct RowMoments {
  RowExponentials exponentials;
  double squares = 0.0;
  double shifted = 0.0;
};
RowMoments moments_of_row(const float* logits, std::int64_t count, float largest);

/// Statistics of the `top` largest logits: log sum exp, mean, the least of them, and how many equal
/// it.
struct TopLogits {
  double lse = 0.0;
  double mean = 0.0;
  float least = 0.0F;
  std::int64_t equal = 0;
};
/// REQUIRES: no NaN, 1 <= top <= count.
TopLogits top_of_row(const float* logits, std::int64_t count, std::int64_t top);

/// Row of logits with a loss other than cross-entropy (RowLoss).
struct RowLossRow {
  float* logits = nullptr;  ///< [count]; with `gradient` they become scale d loss / d logits.
  std::int64_t count = 0;
  float largest = 0.0F;           ///< Largest logit.
  const float* slopes = nullptr;  ///< Factors of the gradient; nullptr: 1.
  bool gradient = false;
  float scale = 1.0F;
};
struct RowLossTerms {
  double loss = 0.0;
  double lse = 0.0;
};
/// `reference`: logits of the distribution that the row is compared with.
RowLossTerms divergence_of_row(const RowLossRow& row, const float* reference,
                               float largest_of_reference);
/// REQUIRES: 1 <= top <= count.
RowLossTerms top_entropy_of_row(const RowLossRow& row, std::int64_t top);

}  // namespace train::kernels::cpu
