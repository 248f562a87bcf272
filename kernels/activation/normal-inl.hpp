// The normal distribution in vectors, compiled once per instruction set (no `#pragma once`: Highway
// includes this file again for each). Include after <hwy/highway.h>.
#if defined(TRAIN_KERNELS_NORMAL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_NORMAL_INL
#undef TRAIN_KERNELS_NORMAL_INL
#else
#define TRAIN_KERNELS_NORMAL_INL
#endif

#include <initializer_list>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Evaluates a polynomial in x; coefficients begin with the highest power.
HWY_INLINE FloatVec polynomial(Floats d, FloatVec x, std::initializer_list<float> coefficients) {
  const float* next = coefficients.begin();
  FloatVec sum = hn::Set(d, *next);
  while (++next != coefficients.end()) {
    sum = hn::MulAdd(sum, x, hn::Set(d, *next));
  }
  return sum;
}

/// Normal distribution at x: density phi(x) and its integral Phi(x) from -infinity.
struct Normal {
  FloatVec density, cdf;
};

/// Phi(-z) = 2^(c z^2) P(z) / Q(z), c = -log2(e) / 2, rounded. P and Q, of degrees 4 and 5, are a
/// minimax fit of the quotient for z in [0, 13.4], relative error 1.5e-8 before rounding. All
/// coefficients are positive, so nothing cancels. The power is scaled by 2^24 and P by 2^-24: the
/// power stays a normal float where Phi is subnormal. From kNormalMost on density and Phi(-z) are
/// 0.
inline constexpr float kNormalMost = 14.4F;
inline constexpr float kNormalScale = 0x1p-24F;

/// 2^(c square + 24) for square up to kNormalMost^2: a minimax polynomial for the fraction
/// (relative error 2e-9), with the integer added to its exponent.
HWY_INLINE FloatVec normal_power(Floats d, FloatVec square) {
  constexpr float c = -0.72134752F;
  constexpr int mantissa_bits = 23;
  const FloatVec shift = hn::Set(d, kToInteger + 24.0F);
  const FloatVec exponent = hn::MulAdd(square, hn::Set(d, c), shift);
  const FloatVec f = hn::MulAdd(square, hn::Set(d, c), hn::Sub(shift, exponent));
  const FloatVec fraction = polynomial(d, f,
                                       {1.53533099e-04F, 1.33989389e-03F, 9.61843798e-03F,
                                        5.55033232e-02F, 2.40226479e-01F, 6.93147203e-01F, 1.0F});
  const hn::RebindToSigned<Floats> integers;
  return hn::BitCast(d, hn::Add(hn::BitCast(integers, fraction),
                                hn::ShiftLeft<mantissa_bits>(hn::BitCast(integers, exponent))));
}

HWY_INLINE Normal normal(Floats d, FloatVec x) {
  constexpr float scale = kNormalScale;
  // phi / power = 1 / sqrt(2 pi) * e^(-z^2 / 2) / 2^(c z^2); the last quotient is nearly 1 as c is
  // rounded.
  constexpr float inverse_sqrt_2pi = 0.39894228F * scale;
  constexpr float rounding_of_c = -6.675e-9F;
  const FloatVec z = hn::Min(hn::Set(d, kNormalMost), hn::Abs(x));  // NaN stays NaN.
  const FloatVec square = hn::Mul(z, z);
  const FloatVec power = normal_power(d, square);
  const FloatVec p = polynomial(d, z,
                                {0.00422687274F * scale, 0.0414283773F * scale, 0.18569121F * scale,
                                 0.441804048F * scale, 0.5F * scale});
  const FloatVec q =
      polynomial(d, z, {0.0105952009F, 0.103849083F, 0.475940439F, 1.21301466F, 1.68149311F, 1.0F});
  const FloatVec tail = hn::Mul(power, hn::Div(p, q));
  const FloatVec density_over_power = hn::MulAdd(
      square, hn::Set(d, inverse_sqrt_2pi * rounding_of_c), hn::Set(d, inverse_sqrt_2pi));
  return {.density = hn::Mul(power, density_over_power),
          .cdf = hn::IfNegativeThenElse(x, tail, hn::Sub(hn::Set(d, 1.0F), tail))};
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
