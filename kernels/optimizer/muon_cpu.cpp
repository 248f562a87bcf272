#include "kernels/optimizer/muon.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/muon_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/optimizer/update_guard.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Rounds to the nearest bf16, ties to even, as fp32. NaN stays NaN.
HWY_INLINE FloatVec rounded_to_bf16(Floats d, FloatVec value) {
  const hn::RebindToUnsigned<Floats> words;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1U));
  const auto rounded =
      hn::And(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffU))), hn::Set(words, 0xffff0000U));
  return hn::IfThenElse(hn::IsNaN(value), value, hn::BitCast(d, rounded));
}

void muon_momentum_range(const MuonMomentumParams& p, const MuonMomentumFactors& f,
                         std::int64_t begin, std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = hn::Mul(hn::Set(d, f.grad_scale), load(d, p.g + i, part));
    const FloatVec m = hn::MulAdd(hn::Set(d, f.momentum_keep), load(d, p.m + i, part),
                                  hn::Mul(hn::Set(d, f.gradient_add), g));
    store(m, d, p.m + i, part);
    const FloatVec next =
        hn::MulAdd(hn::Set(d, f.next_momentum), m, hn::Mul(hn::Set(d, f.next_gradient), g));
    store(rounded_to_bf16(d, p.nesterov ? next : m), d, p.x + i, part);
  });
}

void muon_scale_range(float* x, float norm, std::int64_t begin, std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    store(rounded_to_bf16(d, hn::Div(load(d, x + i, part), hn::Set(d, norm))), d, x + i, part);
  });
}

void blend_bf16_range(const BlendBf16Params& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  const FloatVec a = hn::Set(d, static_cast<float>(p.a));
  const FloatVec b = hn::Set(d, static_cast<float>(p.b));
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec sum = hn::MulAdd(a, load(d, p.x + i, part), hn::Mul(b, load(d, p.y + i, part)));
    store(rounded_to_bf16(d, sum), d, p.out + i, part);
  });
}

void muon_apply_range(const MuonApplyParams& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  const FloatVec keep = hn::Set(d, static_cast<float>(1.0 - p.decay));
  const FloatVec step_size = hn::Set(d, static_cast<float>(p.step_size));
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec kept = hn::Mul(keep, load(d, p.p + i, part));
    store(hn::NegMulAdd(step_size, load(d, p.x + i, part), kept), d, p.p + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(muon_momentum_range);
HWY_EXPORT(muon_scale_range);
HWY_EXPORT(blend_bf16_range);
HWY_EXPORT(muon_apply_range);

namespace {

float scalar_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::isnan(value)
             ? value
             : std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16U) & 1U)) & 0xffff0000U);
}

}  // namespace

void muon_momentum(const MuonMomentumParams& p, int threads) {
  if (p.guard->nonfinite != 0) {
    return;
  }
  MuonMomentumFactors factors = factors_of(p);
  factors.grad_scale = p.guard->grad_scale;
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(muon_momentum_range), p, factors);
}

void muon_normalise(const MuonNormaliseParams& p, int threads) {
  const float norm = scalar_bf16(static_cast<float>(std::sqrt(*p.squared_norm)));
  const float divisor =
      scalar_bf16(std::max(norm, static_cast<float>(p.least)) + static_cast<float>(p.added));
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(muon_scale_range), p.x, divisor);
}

void blend_bf16(const BlendBf16Params& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(blend_bf16_range), p);
}

void muon_apply(const MuonApplyParams& p, int threads) {
  if (p.guard->nonfinite != 0) {
    return;
  }
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(muon_apply_range), p);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
