#include <algorithm>

#include "base/check.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/head/head_cpu.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/logit_row.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels::cpu {
namespace {

constexpr std::int64_t kTermsPerRow = 4;  // Weighted cross-entropy, lse^2, correct, has a target.

RowGradient gradient_of(const HeadLossParams& p, const RowExponentials& row, float row_scale,
                        std::int64_t target) {
  const auto scale = static_cast<double>(row_scale);
  const double of_z = 2.0 * static_cast<double>(p.z_scale) * row.lse;
  const double factor = (scale + of_z) / row.sum * static_cast<double>(p.logit_scale);
  const float onehot = row_scale * p.logit_scale;
  return {.factor = static_cast<float>(factor),
          .uniform = onehot * p.label_smoothing / static_cast<float>(p.vocab),
          .at_target = onehot * (1.0F - p.label_smoothing),
          .target = target};
}

/// Turns products into logits, in place; returns the largest.
float shaped(const HeadLossParams& p, float* logits, float* slopes) {
  const LogitShape shape{.scale = p.logit_scale, .softcap = p.softcap};
  return shape.plain() ? max_of_row(logits, p.vocab)
                       : shape_row(logits, p.vocab, shape, logits, slopes);
}

/// Handles a row with another loss than cross-entropy; `of_reference` is its reference row or null.
/// Writes its first two terms.
void other_loss_row(const HeadLossParams& p, const RowLossRow& row, float weight,
                    float* of_reference, double* terms) {
  RowLossTerms found;
  if (p.row_loss == RowLoss::divergence) {
    const float largest = shaped(p, of_reference, nullptr);
    found = divergence_of_row(row, of_reference, largest);
  } else {
    found = top_entropy_of_row(row, std::min(p.top_k, p.vocab));
  }
  terms[0] = static_cast<double>(weight) * found.loss;
  terms[1] = found.lse * found.lse;
}

/// Loss terms of one row of logits with a target; with `gradient` the logits become d loss / d
/// logits. `of_reference`: HeadLossParams::reference_logits of the row.
void loss_row(const HeadLossParams& p, std::int64_t row, float* logits, bool gradient,
              float* of_reference, double* terms) {
  static thread_local Scratch scratch;
  const std::int32_t target = p.targets[row];
  float* slopes = gradient && p.softcap > 0.0F ? scratch.get<float>(p.vocab) : nullptr;
  const float largest = shaped(p, logits, slopes);
  const float chosen = logits[target];
  const float weight = p.row_weight(row);
  const bool correct = chosen == largest && find_in_row(logits, target, largest) < 0;
  terms[2] = correct ? 1.0 : 0.0;
  terms[3] = 1.0;
  if (p.row_loss != RowLoss::cross_entropy) {
    const RowLossRow those{.logits = logits,
                           .count = p.vocab,
                           .largest = largest,
                           .slopes = slopes,
                           .gradient = gradient,
                           .scale = p.loss_scale * weight * p.logit_scale};
    return other_loss_row(p, those, weight, of_reference, terms);
  }
  double expected = static_cast<double>(chosen);
  if (p.label_smoothing > 0.0F) {
    const auto smoothing = static_cast<double>(p.label_smoothing);
    const double mean = sum_of_row(logits, p.vocab) / static_cast<double>(p.vocab);
    expected = (1.0 - smoothing) * expected + smoothing * mean;
  }
  const RowExponentials exponentials =
      exponentiate_row(logits, p.vocab, largest, gradient ? logits : nullptr);
  terms[0] = static_cast<double>(weight) * (exponentials.lse - expected);
  terms[1] = exponentials.lse * exponentials.lse;
  if (gradient) {
    gradient_of_row(logits, slopes, p.vocab,
                    gradient_of(p, exponentials, p.loss_scale * weight, target));
  }
}

void loss_chunk(const HeadLossParams& p, std::int64_t first, std::int64_t rows, int threads,
                Product multiply) {
  const HeadLossProducts products{p, first, rows};
  const bool gradient = p.dx != nullptr;
  const bool with_reference = p.row_loss == RowLoss::divergence;
  multiply(head_product(p, first, rows), threads);
  if (with_reference) {
    multiply(products.reference(), threads);
  }
  each_row(threads, rows, p.vocab, [&](std::int64_t row) {
    float* logits = p.logits + row * p.vocab;
    float* of_reference = with_reference ? p.reference_logits + row * p.vocab : nullptr;
    double* terms = p.row_terms + (first + row) * kTermsPerRow;
    if (p.targets[first + row] >= 0) {
      loss_row(p, first + row, logits, gradient, of_reference, terms);
      return;
    }
    std::fill_n(terms, kTermsPerRow, 0.0);
    if (gradient) {
      std::fill_n(logits, p.vocab, 0.0F);
    }
  });
  if (gradient) {
    multiply(products.input_gradient(), threads);
  }
  if (p.dweight != nullptr) {
    multiply(products.weight_gradient(), threads);
  }
}

LossSums sum_rows(const HeadLossParams& p) {
  LossSums sums;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const double* terms = p.row_terms + row * kTermsPerRow;
    sums.cross_entropy += terms[0];
    sums.z_squared += terms[1];
    sums.correct += terms[2];
    sums.targets += terms[3];
    sums.weights += p.targets[row] >= 0 ? static_cast<double>(p.row_weight(row)) : 0.0;
  }
  return sums;
}

}  // namespace

void head_loss_with(const HeadLossParams& p, int threads, Product multiply) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.targets[row] >= -1 && p.targets[row] < p.vocab,
                "head_loss: target {} of row {} is outside the vocabulary of {}", p.targets[row],
                row, p.vocab);
  }
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    loss_chunk(p, first, std::min(p.chunk_rows, p.rows - first), threads, multiply);
  }
  if (p.dweight != nullptr && p.rows == 0) {
    std::fill_n(p.dweight, p.vocab * p.cols, 0.0F);
  }
  *p.sums = sum_rows(p);
}

void head_loss(const HeadLossParams& p, int threads) { head_loss_with(p, threads, matmul); }

}  // namespace train::kernels::cpu
