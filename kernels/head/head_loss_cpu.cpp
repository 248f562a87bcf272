#include "kernels/head/head_loss_products.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu_support.hpp"
#include "kernels/head/logit_row.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head/head_loss_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void scale_row(float* values, std::int64_t count, float factor) {
  const Floats d;
  const FloatVec f = hn::Set(d, factor);
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(hn::Mul(f, load(d, values + i, part)), d, values + i, part);
  });
}

void multiply_row(float* values, const float* factors, std::int64_t count) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(hn::Mul(load(d, values + i, part), load(d, factors + i, part)), d, values + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(scale_row);
HWY_EXPORT(multiply_row);

namespace {

constexpr std::int64_t terms_per_row = 4;  // Cross-entropy, lse^2, correct, has a target.

/// Loss terms of one row of logits; with `gradient` the logits become d loss / d logits:
///   softmax * ((target >= 0 ? loss_scale : 0) + 2 z_scale lse) - loss_scale * onehot(target)
void loss_row(const HeadLossParams& p, float* logits, std::int64_t target, bool gradient,
              double* terms) {
  static thread_local Scratch scratch;
  float* slopes = gradient && p.softcap > 0.0F ? scratch.get<float>(p.vocab) : nullptr;
  const LogitShape shape{.softcap = p.softcap};
  const float largest = shape.plain() ? max_of_row(logits, p.vocab)
                                      : shape_row(logits, p.vocab, shape, logits, slopes);
  const bool has_target = target >= 0;
  const float chosen = has_target ? logits[target] : 0.0F;
  const bool correct = has_target && chosen == largest && find_in_row(logits, target, largest) < 0;
  const auto [sum, lse] = exponentiate_row(logits, p.vocab, largest, gradient ? logits : nullptr);
  terms[0] = has_target ? lse - static_cast<double>(chosen) : 0.0;
  terms[1] = lse * lse;
  terms[2] = correct ? 1.0 : 0.0;
  terms[3] = has_target ? 1.0 : 0.0;
  if (!gradient) {
    return;
  }
  const double loss_scale = has_target ? static_cast<double>(p.loss_scale) : 0.0;
  const double factor = (loss_scale + 2.0 * static_cast<double>(p.z_scale) * lse) / sum;
  HWY_DYNAMIC_DISPATCH(scale_row)(logits, p.vocab, static_cast<float>(factor));
  if (has_target) {
    logits[target] -= p.loss_scale;
  }
  if (slopes != nullptr) {
    HWY_DYNAMIC_DISPATCH(multiply_row)(logits, slopes, p.vocab);
  }
}

void loss_chunk(const HeadLossParams& p, std::int64_t first, std::int64_t rows, int threads) {
  const HeadLossProducts products{p, first, rows};
  auto* logits = static_cast<float*>(p.logits);
  const bool gradient = p.dx != nullptr;
  matmul(head_product(p, first, rows), threads);
  each_row(threads, rows, p.vocab, [&](std::int64_t row) {
    loss_row(p, logits + row * p.vocab, p.targets[first + row], gradient,
             p.row_terms + (first + row) * terms_per_row);
  });
  if (gradient) {
    matmul(products.input_gradient(), threads);
    matmul(products.weight_gradient(), threads);
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
  }
  return sums;
}

}  // namespace

void head_loss(const HeadLossParams& p, int threads) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.targets[row] >= -1 && p.targets[row] < p.vocab,
                "head_loss: target {} of row {} is outside the vocabulary of {}", p.targets[row],
                row, p.vocab);
  }
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    loss_chunk(p, first, std::min(p.chunk_rows, p.rows - first), threads);
  }
  if (p.dx != nullptr && p.rows == 0) {
    std::fill_n(p.dweight, p.vocab * p.cols, 0.0F);
  }
  *p.sums = sum_rows(p);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
