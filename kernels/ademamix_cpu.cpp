#include <cmath>

#include "kernels/ademamix.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ademamix_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

// Defined once although the file is read once per instruction set.
#ifndef TRAIN_KERNELS_ADEMAMIX_FACTORS
#define TRAIN_KERNELS_ADEMAMIX_FACTORS
namespace train::kernels::cpu {

/// What a step multiplies by.
struct AdemamixFactors {
  float grad_scale, keep, lr, eps;
  float beta1, one_minus_beta1, beta2, one_minus_beta2, beta3, one_minus_beta3;
  float inverse_correction1;       // 1 / (1 - beta1^t)
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^t)
  float alpha;
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void ademamix_range(const AdemamixParams& p, const AdemamixFactors& f, std::int64_t begin,
                    std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = hn::Mul(hn::Set(d, f.grad_scale), load(d, p.g + i, part));
    const auto average = [&](float* state, float keep, float add, FloatVec value) {
      const FloatVec result =
          hn::MulAdd(hn::Set(d, keep), load(d, state + i, part), hn::Mul(hn::Set(d, add), value));
      store(result, d, state + i, part);
      return result;
    };
    const FloatVec fast = average(p.fast, f.beta1, f.one_minus_beta1, g);
    const FloatVec slow = average(p.slow, f.beta3, f.one_minus_beta3, g);
    const FloatVec v = average(p.v, f.beta2, f.one_minus_beta2, hn::Mul(g, g));
    const FloatVec denominator =
        hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.inverse_root_correction2), hn::Set(d, f.eps));
    const FloatVec mixed =
        hn::MulAdd(fast, hn::Set(d, f.inverse_correction1), hn::Mul(hn::Set(d, f.alpha), slow));
    const FloatVec kept = hn::Mul(hn::Set(d, f.keep), load(d, p.p + i, part));
    store(hn::NegMulAdd(hn::Set(d, f.lr), hn::Div(mixed, denominator), kept), d, p.p + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(ademamix_range);

namespace {

AdemamixFactors factors_of(const AdemamixParams& p) {
  const auto t = static_cast<double>(p.step);
  const double correction1 = 1.0 - std::pow(p.beta1, t);
  const double correction2 = 1.0 - std::pow(p.beta2, t);
  return {.grad_scale = p.gate->grad_scale,
          .keep = static_cast<float>(1.0 - p.decay),
          .lr = static_cast<float>(p.lr),
          .eps = static_cast<float>(p.eps),
          .beta1 = static_cast<float>(p.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .beta2 = static_cast<float>(p.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .beta3 = static_cast<float>(p.beta3),
          .one_minus_beta3 = static_cast<float>(1.0 - p.beta3),
          .inverse_correction1 = static_cast<float>(1.0 / correction1),
          .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .alpha = static_cast<float>(p.alpha)};
}

}  // namespace

void ademamix_update(Stream& stream, const AdemamixParams& params) {
  require_pointers("ademamix_update", params.count, params.p, params.g, params.fast, params.slow,
                   params.v);
  TRAIN_CHECK(params.gate != nullptr, "ademamix_update: no gate");
  TRAIN_CHECK(params.step >= 1, "ademamix_update: steps count from 1, not {}", params.step);
  stream.enqueue([p = params, threads = stream.threads()] {
    if (p.gate->poisoned != 0) {
      return;
    }
    const auto range = HWY_DYNAMIC_DISPATCH(ademamix_range);
    const AdemamixFactors factors = factors_of(p);
    parallel_blocks(threads, p.count, element_block,
                    [&](std::int64_t begin, std::int64_t end) { range(p, factors, begin, end); });
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
