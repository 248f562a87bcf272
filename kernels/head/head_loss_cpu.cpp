#include "kernels/head/head_loss_products.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head/head_loss_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

float max_of_row(const float* logits, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const Floats d;
  const FloatVec lowest = hn::Set(d, kLowest);
  Floats16 largest(kLowest);
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto which) {
    const FloatVec v = counted_or(load(d, logits + i, part), lowest, d, part);
    largest[which] = hn::Max(largest[which], v);
  });
  return max_of(largest);
}

/// logits = exp(logits - largest); the sum, in double over runs that a float sum can stand. A logit
/// that is NaN or +Inf makes the sum NaN.
double exponentiate_row(float* logits, std::int64_t count, float largest) {
  constexpr std::int64_t run = 4096;
  const Floats d;
  const FloatVec shift = hn::Set(d, largest);
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < count; begin += run) {
    Floats16 partial(0.0F);
    each_sixteen(begin, HWY_MIN(count, begin + run), [&](std::int64_t i, auto part, auto which) {
      const FloatVec e = exp_of_negative(d, hn::Sub(load(d, logits + i, part), shift));
      partial[which] = hn::Add(partial[which], counted_or(e, hn::Zero(d), d, part));
      store(e, d, logits + i, part);
    });
    sum += static_cast<double>(sum_of(partial));
  }
  return sum;
}

void scale_row(float* values, std::int64_t count, float factor) {
  const Floats d;
  const FloatVec f = hn::Set(d, factor);
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(hn::Mul(f, load(d, values + i, part)), d, values + i, part);
  });
}

/// Caps the logits; with `slopes` their derivatives there.
void cap_row(float* logits, float* slopes, std::int64_t count, float cap) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    const FloatVec t = tanh_of(d, hn::Mul(load(d, logits + i, part), hn::Set(d, 1.0F / cap)));
    store(hn::Mul(hn::Set(d, cap), t), d, logits + i, part);
    if (slopes != nullptr) {
      store(hn::NegMulAdd(t, t, hn::Set(d, 1.0F)), d, slopes + i, part);
    }
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

HWY_EXPORT(max_of_row);
HWY_EXPORT(exponentiate_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(cap_row);
HWY_EXPORT(multiply_row);

namespace {

constexpr std::int64_t terms_per_row = 4;  // Cross-entropy, lse^2, correct, has a target.

/// Loss terms of one row of logits; with `gradient` the logits become d loss / d logits:
///   softmax * ((target >= 0 ? loss_scale : 0) + 2 z_scale lse) - loss_scale * onehot(target)
void loss_row(const HeadLossParams& p, float* logits, std::int64_t target, bool gradient,
              double* terms) {
  static thread_local Scratch scratch;
  float* slopes = gradient && p.softcap > 0.0F ? scratch.get<float>(p.vocab) : nullptr;
  if (p.softcap > 0.0F) {
    HWY_DYNAMIC_DISPATCH(cap_row)(logits, slopes, p.vocab, p.softcap);
  }
  const float largest = HWY_DYNAMIC_DISPATCH(max_of_row)(logits, p.vocab);
  const bool has_target = target >= 0;
  const float chosen = has_target ? logits[target] : 0.0F;
  const bool correct = has_target && chosen == largest &&
                       std::find(logits, logits + target, largest) == logits + target;
  const double sum = HWY_DYNAMIC_DISPATCH(exponentiate_row)(logits, p.vocab, largest);
  const double lse = static_cast<double>(largest) + std::log(sum);
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
  matmul(products.logits(), threads);
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
