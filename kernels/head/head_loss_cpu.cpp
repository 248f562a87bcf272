#include <algorithm>

#include "base/check.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/head/head_cpu.hpp"
#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/logit_row.hpp"

namespace train::kernels::cpu {
namespace {

constexpr std::int64_t terms_per_row = 4;  // Weighted cross-entropy, lse^2, correct, has a target.

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

/// Loss terms of one row of logits, which has a target; with `gradient` the logits become
/// d loss / d logits.
void loss_row(const HeadLossParams& p, std::int64_t row, float* logits, bool gradient,
              double* terms) {
  static thread_local Scratch scratch;
  const std::int32_t target = p.targets[row];
  const LogitShape shape{.scale = p.logit_scale, .softcap = p.softcap};
  float* slopes = gradient && p.softcap > 0.0F ? scratch.get<float>(p.vocab) : nullptr;
  const float largest = shape.plain() ? max_of_row(logits, p.vocab)
                                      : shape_row(logits, p.vocab, shape, logits, slopes);
  const float chosen = logits[target];
  const bool correct = chosen == largest && find_in_row(logits, target, largest) < 0;
  double expected = static_cast<double>(chosen);
  if (p.label_smoothing > 0.0F) {
    const auto smoothing = static_cast<double>(p.label_smoothing);
    const double mean = sum_of_row(logits, p.vocab) / static_cast<double>(p.vocab);
    expected = (1.0 - smoothing) * expected + smoothing * mean;
  }
  const RowExponentials exponentials =
      exponentiate_row(logits, p.vocab, largest, gradient ? logits : nullptr);
  const float weight = p.row_weight(row);
  terms[0] = static_cast<double>(weight) * (exponentials.lse - expected);
  terms[1] = exponentials.lse * exponentials.lse;
  terms[2] = correct ? 1.0 : 0.0;
  terms[3] = 1.0;
  if (gradient) {
    gradient_of_row(logits, slopes, p.vocab,
                    gradient_of(p, exponentials, p.loss_scale * weight, target));
  }
}

void loss_chunk(const HeadLossParams& p, std::int64_t first, std::int64_t rows, int threads,
                Product multiply) {
  const HeadLossProducts products{p, first, rows};
  const bool gradient = p.dx != nullptr;
  multiply(head_product(p, first, rows), threads);
  each_row(threads, rows, p.vocab, [&](std::int64_t row) {
    float* logits = p.logits + row * p.vocab;
    double* terms = p.row_terms + (first + row) * terms_per_row;
    if (p.targets[first + row] >= 0) {
      loss_row(p, first + row, logits, gradient, terms);
      return;
    }
    std::fill_n(terms, terms_per_row, 0.0);
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
    const double* terms = p.row_terms + row * terms_per_row;
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
