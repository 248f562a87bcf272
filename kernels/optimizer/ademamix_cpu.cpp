#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/ademamix_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/optimizer/update_guard.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void ademamix_range(const AdemamixParams::Tensor& p, const AdemamixFactors& f, std::int64_t begin,
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

void ademamix_update(const AdemamixParams& p, int threads) {
  if (p.guard->nonfinite != 0) {
    return;
  }
  AdemamixFactors factors = factors_of(p);
  factors.grad_scale = p.guard->grad_scale;
  const auto range = HWY_DYNAMIC_DISPATCH(ademamix_range);
  for (const AdemamixParams::Tensor& tensor : p.tensors) {
    each_block(threads, tensor.count, range, tensor, factors);
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
