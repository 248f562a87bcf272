#include <array>

#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/dana_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/optimizer/update_guard.hpp"
#include "kernels/simd-inl.hpp"

// Defined once, although the file is included once per instruction set.
#ifndef TRAIN_KERNELS_DANA_FACTORS
#define TRAIN_KERNELS_DANA_FACTORS
namespace train::kernels::cpu {

/// Row sums: column c in sum c % 16, then a tree over them; one order on every machine.
class DanaSums {
 public:
  void add(std::int64_t column, float alpha, float ratio, float momentum) {
    const auto lane = static_cast<std::size_t>(column) % kLanes;
    alpha_[lane] += static_cast<double>(alpha);
    ratio_[lane] += static_cast<double>(ratio);
    square_[lane] += static_cast<double>(momentum) * static_cast<double>(momentum);
  }
  [[nodiscard]] DanaRowSums result(std::int64_t cols) {
    return {.alpha = fold(alpha_),
            .ratio = fold(ratio_),
            .momentum_squared = fold(square_),
            .count = static_cast<double>(cols)};
  }

 private:
  static constexpr std::size_t kLanes = 16;
  using Lanes = std::array<double, kLanes>;

  static double fold(Lanes& sums) {
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) {
        sums[lane] += sums[lane + half];
      }
    }
    return sums[0];
  }

  Lanes alpha_{}, ratio_{}, square_{};
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Quantities of one vector that the diagnostics sum.
struct DanaVectors {
  FloatVec alpha, ratio, m;
};

template <class Part>
HWY_INLINE DanaVectors dana_vector(const DanaParams::Tensor& p, const DanaFactors& f,
                                   std::int64_t i, Part part, bool star) {
  const Floats d;
  const FloatVec a = hn::Set(d, f.a);
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec g = hn::Mul(hn::Set(d, f.grad_scale), load(d, p.g + i, part));
  const FloatVec old_m = load(d, p.m + i, part);
  const FloatVec m = hn::MulAdd(a, hn::Sub(g, old_m), old_m);
  const FloatVec v =
      hn::MulAdd(hn::Set(d, f.one_minus_a), load(d, p.v + i, part), hn::Mul(a, hn::Mul(g, g)));
  const FloatVec s = hn::Add(hn::Sqrt(v), hn::Set(d, f.eps));
  store(m, d, p.m + i, part);
  store(v, d, p.v + i, part);

  FloatVec scale = hn::Div(one, s);  // n
  FloatVec share = one;              // R
  FloatVec growth = hn::Set(d, f.growth);
  if (star) {
    const FloatVec old_tau = load(d, p.tau + i, part);
    const FloatVec magnitude = hn::Abs(g);
    const FloatVec seen = hn::Div(magnitude, hn::Add(magnitude, s));
    const FloatVec tau = hn::MulAdd(a, hn::Sub(seen, old_tau), old_tau);
    store(tau, d, p.tau + i, part);
    const FloatVec c = hn::Min(tau, hn::Set(d, 0.5F));
    share = hn::Max(hn::Div(c, hn::Sub(one, c)), hn::Set(d, f.floor));
    scale = hn::Div(hn::Sqrt(share), s);
    const FloatVec time = hn::Max(hn::Mul(tau, hn::Set(d, f.step)), one);
    growth = exp_of(d, hn::Mul(hn::Set(d, f.exponent), log_of(d, time)));
  }
  const FloatVec scaled_m = hn::Mul(hn::Abs(m), scale);
  const FloatVec ratio = star ? hn::Div(scaled_m, share) : scaled_m;
  const FloatVec alpha = hn::Min(hn::Mul(growth, ratio), hn::Set(d, f.clip));
  const FloatVec momentum = hn::CopySign(hn::MulAdd(share, alpha, scaled_m), m);
  const FloatVec moved = hn::NegMulAdd(hn::Set(d, f.lr), hn::Mul(g, scale), load(d, p.p + i, part));
  const FloatVec updated = hn::NegMulAdd(hn::Set(d, f.lr_gamma_3), momentum, moved);
  store(hn::Mul(updated, hn::Set(d, f.keep)), d, p.p + i, part);
  return {alpha, ratio, m};
}

void dana_range(const DanaParams::Tensor& p, const DanaFactors& f, std::int64_t begin,
                std::int64_t end) {
  if (p.tau != nullptr) {
    each_vector(begin, end, [&](std::int64_t i, auto part) { dana_vector(p, f, i, part, true); });
  } else {
    each_vector(begin, end, [&](std::int64_t i, auto part) { dana_vector(p, f, i, part, false); });
  }
}

void dana_row(const DanaParams::Tensor& p, const DanaFactors& f, std::int64_t row) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t begin = row * p.cols;
  DanaSums sums;
  each_vector(begin, begin + p.cols, [&](std::int64_t i, auto part) {
    const DanaVectors vectors = dana_vector(p, f, i, part, p.tau != nullptr);
    HWY_ALIGN std::array<float, hn::MaxLanes(d)> alpha, ratio, m;
    hn::Store(vectors.alpha, d, alpha.data());
    hn::Store(vectors.ratio, d, ratio.data());
    hn::Store(vectors.m, d, m.data());
    const std::int64_t count = std::min(lanes, begin + p.cols - i);
    for (std::int64_t lane = 0; lane < count; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      sums.add(i - begin + lane, alpha[at], ratio[at], m[at]);
    }
  });
  p.row_sums[row] = sums.result(p.cols);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(dana_range);
HWY_EXPORT(dana_row);

void dana_update(const DanaParams& p, int threads) {
  if (p.guard->nonfinite != 0) {
    return;
  }
  DanaFactors factors = factors_of(p);
  factors.grad_scale = p.guard->grad_scale;
  const auto range = HWY_DYNAMIC_DISPATCH(dana_range);
  const auto row = HWY_DYNAMIC_DISPATCH(dana_row);
  for (const DanaParams::Tensor& tensor : p.tensors) {
    if (tensor.row_sums == nullptr) {
      each_block(threads, tensor.rows * tensor.cols, range, tensor, factors);
    } else {
      each_row(threads, tensor.rows, tensor.cols, [&](std::int64_t i) { row(tensor, factors, i); });
    }
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
