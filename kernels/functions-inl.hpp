// Elementary functions of float vectors, compiled once per instruction set, as simd-inl.hpp, which
// includes this file. Own implementations: a library's may change bits with its version.
//
// Only fused operations, so that all supported processors give the same bits, and polynomials that
// scalar code could repeat exactly: a value does not depend on its place in a vector.
#if defined(TRAIN_KERNELS_FUNCTIONS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_FUNCTIONS_INL
#undef TRAIN_KERNELS_FUNCTIONS_INL
#else
#define TRAIN_KERNELS_FUNCTIONS_INL
#endif

#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;
using Int32s = hn::RebindToSigned<Floats>;

/// ln 2 as a sum of two; the product of the first with an integer below 2^8 is exact.
inline constexpr float kLn2Upper = 0x1.62e4p-1F;
inline constexpr float kLn2Lower = 0x1.7f7d1cp-20F;
inline constexpr int kFloatMantissaBits = 23;

/// exp(x) = 2^octaves (1 + rest), -0.3 < rest < 0.42.
struct FloatPower {
  hn::Vec<Int32s> octaves;  ///< Held in the lower bits; those of `kToInteger` are above them.
  FloatVec rest;
};

/// Adding it to a float rounds to the nearest integer.
inline constexpr float kToInteger = 0x1.8p23F;

/// REQUIRES: |x| < 2^14, otherwise the result is undefined.
HWY_INLINE FloatPower float_power(Floats d, FloatVec x) {
  constexpr float log2_e = 0x1.715476p0F;
  const FloatVec shift = hn::Set(d, kToInteger);
  const FloatVec shifted = hn::MulAdd(x, hn::Set(d, log2_e), shift);
  const FloatVec octaves = hn::Sub(shifted, shift);
  const FloatVec upper = hn::NegMulAdd(octaves, hn::Set(d, kLn2Upper), x);
  const FloatVec r = hn::NegMulAdd(octaves, hn::Set(d, kLn2Lower), upper);
  // (exp(r) - 1 - r) / r^2, a minimax fit: 4e-9 of exp(r).
  const FloatVec square = hn::Mul(r, r);
  const FloatVec high = hn::MulAdd(r, hn::Set(d, 0x1.6b6e22p-10F), hn::Set(d, 0x1.122fc2p-7F));
  const FloatVec middle = hn::MulAdd(r, hn::Set(d, 0x1.555688p-5F), hn::Set(d, 0x1.5554a4p-3F));
  const FloatVec low = hn::MulAdd(r, hn::MulAdd(square, high, middle), hn::Set(d, 0.5F));
  return {hn::BitCast(Int32s(), shifted), hn::MulAdd(square, low, r)};
}

/// 2^k, k in the lower bits. REQUIRES: the result is a normal float.
HWY_INLINE FloatVec power_of_two(Floats d, hn::Vec<Int32s> k) {
  const Int32s integers;
  return hn::BitCast(d, hn::ShiftLeft<kFloatMantissaBits>(hn::Add(k, hn::Set(integers, 127))));
}

/// exp(x), 1.1 ulp; NaN stays NaN.
HWY_INLINE FloatVec exp_of(Floats d, FloatVec x) {
  constexpr float least = -104.0F;  // exp(x) is 0 below `least`, infinity above `most`.
  constexpr float most = 89.0F;
  const FloatVec within = hn::Min(hn::Max(x, hn::Set(d, least)), hn::Set(d, most));
  const FloatPower power = float_power(d, within);
  const Int32s integers;
  // Scaled in two steps; the second may leave the normal range.
  const auto octaves = hn::Sub(power.octaves, hn::BitCast(integers, hn::Set(d, kToInteger)));
  const auto half = hn::ShiftRight<1>(octaves);
  const FloatVec scaled = hn::Mul(hn::Add(power.rest, hn::Set(d, 1.0F)), power_of_two(d, half));
  const FloatVec result = hn::Mul(scaled, power_of_two(d, hn::Sub(octaves, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

/// |x| up to which exp(x) and exp(-x) are normal floats.
inline constexpr float kNormalPower = 87.0F;

/// exp(x) with the same bits as exp_of(). REQUIRES: |x| <= kNormalPower.
HWY_INLINE FloatVec exp_of_normal(Floats d, FloatVec x) {
  const FloatPower power = float_power(d, x);
  const auto bits = hn::BitCast(Int32s(), hn::Add(power.rest, hn::Set(d, 1.0F)));
  return hn::BitCast(d, hn::Add(bits, hn::ShiftLeft<kFloatMantissaBits>(power.octaves)));
}

/// exp(x) with the same bits as exp_of(), faster; for x whose result is normal, as for differences
/// from a maximum.
HWY_INLINE FloatVec exp_of_negative(Floats d, FloatVec x) {
  const FloatVec most = hn::Set(d, kNormalPower);
  if (!hn::AllTrue(d, hn::And(hn::Ge(x, hn::Neg(most)), hn::Le(x, most)))) {
    return exp_of(d, x);
  }
  return exp_of_normal(d, x);
}

/// Logarithm of a positive normal number, 2 ulp; NaN stays NaN.
HWY_INLINE FloatVec log_of(Floats d, FloatVec x) {
  const Int32s integers;
  // x = 2^octaves z, z from 1 / sqrt(2) to sqrt(2).
  const auto least = hn::BitCast(integers, hn::Set(d, 0.70710678F));
  const auto above = hn::Sub(hn::BitCast(integers, x), least);
  const auto exponent = hn::ShiftRight<kFloatMantissaBits>(above);
  const FloatVec z = hn::BitCast(
      d, hn::Sub(hn::BitCast(integers, x), hn::ShiftLeft<kFloatMantissaBits>(exponent)));
  const FloatVec octaves = hn::ConvertTo(d, exponent);
  // log z = 2 atanh(s), s = (z - 1) / (z + 1): with t = z - 1 it is t - s (t - ...), t exact.
  const FloatVec t = hn::Sub(z, hn::Set(d, 1.0F));
  const FloatVec s = hn::Div(t, hn::Add(t, hn::Set(d, 2.0F)));
  const FloatVec square = hn::Mul(s, s);
  const FloatVec high = hn::MulAdd(square, hn::Set(d, 2.0F / 9.0F), hn::Set(d, 2.0F / 7.0F));
  const FloatVec low = hn::MulAdd(square, high, hn::Set(d, 2.0F / 5.0F));
  const FloatVec series = hn::Mul(square, hn::MulAdd(square, low, hn::Set(d, 2.0F / 3.0F)));
  // 2 s = t - s t.
  const FloatVec rest =
      hn::NegMulAdd(s, hn::Sub(t, series), hn::Mul(octaves, hn::Set(d, kLn2Lower)));
  const FloatVec result = hn::Add(hn::Mul(octaves, hn::Set(d, kLn2Upper)), hn::Add(t, rest));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

/// tanh(x), 3 ulp; NaN stays NaN.
HWY_INLINE FloatVec tanh_of(Floats d, FloatVec x) {
  constexpr float most = 10.0F;  // tanh rounds to 1 from 9.02 on.
  const FloatVec size = hn::Min(hn::Abs(x), hn::Set(d, most));
  const FloatPower power = float_power(d, hn::Add(size, size));
  const FloatVec one = hn::Set(d, 1.0F);
  const auto bits = hn::BitCast(Int32s(), one);
  const FloatVec scale =
      hn::BitCast(d, hn::Add(bits, hn::ShiftLeft<kFloatMantissaBits>(power.octaves)));
  // exp(2 size) - 1; with octaves == 0 equal to the rest.
  const FloatVec above = hn::MulAdd(scale, power.rest, hn::Sub(scale, one));
  const FloatVec result = hn::Div(above, hn::Add(above, hn::Set(d, 2.0F)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(result, x));
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
