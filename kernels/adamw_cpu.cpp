#include "kernels/adamw.hpp"

#include <cmath>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

// Defined once although the file is read once per instruction set.
#ifndef TRAIN_KERNELS_ADAMW_FACTORS
#define TRAIN_KERNELS_ADAMW_FACTORS
namespace train::kernels::cpu {

/// What a step multiplies by, worked out in double and rounded once.
struct AdamwFactors {
  float grad_scale, keep, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps, step_size;            // step_size = lr / (1 - beta1^t)
  float keep_after;                // 1: exact, as if there was no such factor.
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void adamw_range(const AdamwParams& a, const AdamwFactors& f, std::int64_t begin,
                 std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = hn::Mul(hn::Set(d, f.grad_scale), load(d, a.g + i, part));
    const FloatVec m = hn::MulAdd(hn::Set(d, f.beta1), load(d, a.m + i, part),
                                  hn::Mul(hn::Set(d, f.one_minus_beta1), g));
    const FloatVec v = hn::MulAdd(hn::Set(d, f.beta2), load(d, a.v + i, part),
                                  hn::Mul(hn::Set(d, f.one_minus_beta2), hn::Mul(g, g)));
    const FloatVec denominator =
        hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.inverse_root_correction2), hn::Set(d, f.eps));
    const FloatVec kept = hn::Mul(hn::Set(d, f.keep), load(d, a.p + i, part));
    const FloatVec updated = hn::NegMulAdd(hn::Set(d, f.step_size), hn::Div(m, denominator), kept);
    store(hn::Mul(updated, hn::Set(d, f.keep_after)), d, a.p + i, part);
    store(m, d, a.m + i, part);
    store(v, d, a.v + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(adamw_range);

namespace {

AdamwFactors factors_of(const AdamwParams& p) {
  const auto t = static_cast<double>(p.step);
  const double correction1 = 1.0 - std::pow(p.beta1, t);
  const double correction2 = 1.0 - std::pow(p.beta2, t);
  return {.grad_scale = p.gate->grad_scale,
          .keep = static_cast<float>(1.0 - p.lr * p.weight_decay),
          .beta1 = static_cast<float>(p.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .beta2 = static_cast<float>(p.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(p.eps),
          .step_size = static_cast<float>(p.lr / correction1),
          .keep_after = static_cast<float>(1.0 - p.decay_after)};
}

}  // namespace

void adamw_update(Stream& stream, const AdamwParams& params) {
  require_pointers("adamw_update", params.count, params.p, params.g, params.m, params.v);
  TRAIN_CHECK(params.gate != nullptr, "adamw_update: no gate");
  TRAIN_CHECK(params.step >= 1, "adamw_update: steps count from 1, not {}", params.step);
  stream.enqueue([p = params, threads = stream.threads()] {
    if (p.gate->poisoned != 0) {
      return;
    }
    const auto range = HWY_DYNAMIC_DISPATCH(adamw_range);
    const AdamwFactors factors = factors_of(p);
    parallel_blocks(threads, p.count, element_block,
                    [&](std::int64_t begin, std::int64_t end) { range(p, factors, begin, end); });
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
