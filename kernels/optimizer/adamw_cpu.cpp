#include "kernels/optimizer/adamw.hpp"

#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/adamw_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/optimizer/update_guard.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void adamw_range(const AdamwParams::Tensor& a, const AdamwFactors& f, std::int64_t begin,
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

void adamw_update(const AdamwParams& p, int threads) {
  if (p.guard->nonfinite != 0) {
    return;
  }
  const auto range = HWY_DYNAMIC_DISPATCH(adamw_range);
  AdamwFactors factors = factors_of(p);
  factors.grad_scale = p.guard->grad_scale;
  for (const AdamwParams::Tensor& tensor : p.tensors) {
    parallel_blocks(threads, tensor.count, kElementBlock,
                    [&](std::int64_t begin, std::int64_t end) {
                      range(tensor, factors, begin, end);
                      for (std::int64_t i = begin; tensor.rounded != nullptr && i < end; ++i) {
                        tensor.rounded[i] = to_bf16(tensor.p[i]);
                      }
                    });
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
