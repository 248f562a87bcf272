#pragma once

#include <cstdint>

namespace train::kernels::cpu {

// What the CPU computes of one row of logits, for the loss and for log-probabilities alike: the
// same bits in both.

/// How logits are made of the head's products: softcap tanh(scale product / softcap); without a cap
/// scale product.
struct LogitShape {
  float scale = 1.0F;
  float softcap = 0.0F;

  [[nodiscard]] bool plain() const { return scale == 1.0F && softcap == 0.0F; }
};

[[nodiscard]] float max_of_row(const float* logits, std::int64_t count);

/// logits = shape(products), which may be the same memory; their largest. With `slopes` also the
/// derivatives of the cap. REQUIRES: slopes with a cap alone.
float shape_row(const float* products, std::int64_t count, const LogitShape& shape, float* logits,
                float* slopes);

/// Where `value` comes first; -1: nowhere.
[[nodiscard]] std::int64_t find_in_row(const float* logits, std::int64_t count, float value);

/// Sum of exp(logit - largest), in double over runs that a float sum can stand, and log sum exp of
/// the logits. A logit that is NaN or +Inf, or a row that is all -Inf, makes both NaN.
struct RowExponentials {
  double sum = 0.0;
  double lse = 0.0;
};
/// With `exponentials` also these, which may be where the logits are.
RowExponentials exponentiate_row(const float* logits, std::int64_t count, float largest,
                                 float* exponentials);

[[nodiscard]] double sum_of_row(const float* logits, std::int64_t count);

/// exponentials = (factor exponentials - uniform - at_target [at the target]) slopes: the gradient
/// of a row's loss. Without slopes they are 1.
struct RowGradient {
  float factor = 0.0F;
  float uniform = 0.0F;
  float at_target = 0.0F;
  std::int64_t target = 0;
};
void gradient_of_row(float* exponentials, const float* slopes, std::int64_t count,
                     const RowGradient& row);

/// The same bits as exponentiate_row(), and with e = exp(logit - largest) the sums of e^2 and of e
/// (logit - largest).
struct RowMoments {
  RowExponentials exponentials;
  double squares = 0.0;
  double shifted = 0.0;
};
RowMoments moments_of_row(const float* logits, std::int64_t count, float largest);

/// Of the `top` largest logits: log sum exp, and their mean; the least of them, and how many are
/// equal to it.
struct TopLogits {
  double lse = 0.0;
  double mean = 0.0;
  float least = 0.0F;
  std::int64_t equal = 0;
};
/// REQUIRES: no NaN, 1 <= top <= count.
TopLogits top_of_row(const float* logits, std::int64_t count, std::int64_t top);

/// A row of logits whose loss is no cross-entropy (RowLoss).
struct RowLossRow {
  float* logits = nullptr;  ///< [count]; with `gradient` they become scale d loss / d logits.
  std::int64_t count = 0;
  float largest = 0.0F;           ///< Of the logits.
  const float* slopes = nullptr;  ///< By what a gradient is multiplied; nullptr: 1.
  bool gradient = false;
  float scale = 1.0F;
};
struct RowLossTerms {
  double loss = 0.0;
  double lse = 0.0;
};
/// `reference`: logits, too, of the distribution that the row's is compared with.
RowLossTerms divergence_of_row(const RowLossRow& row, const float* reference,
                               float largest_of_reference);
/// REQUIRES: 1 <= top <= count.
RowLossTerms top_entropy_of_row(const RowLossRow& row, std::int64_t top);

}  // namespace train::kernels::cpu
