// Vector code of both passes of the selective scan, compiled once per instruction set, as
// simd-inl.hpp.
#if defined(TRAIN_KERNELS_SCAN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_SCAN_INL
#undef TRAIN_KERNELS_SCAN_INL
#else
#define TRAIN_KERNELS_SCAN_INL
#endif

#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"
#include "kernels/state_space/selective_scan.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// log(1 + exp(x)), 4 ulp: x itself where x is large, exp(x) where it is small. NaN stays NaN.
HWY_INLINE FloatVec softplus(Floats d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec e = exp_of_negative(d, hn::Neg(hn::Abs(x)));
  const FloatVec above = hn::Add(one, e);
  // log(1 + e) = log(above) e / (above - 1): the rounding of `above` cancels (Kahan).
  const FloatVec rest = hn::Sub(above, one);
  const auto lost = hn::Eq(rest, hn::Zero(d));
  const FloatVec ratio = hn::Div(e, hn::IfThenElse(lost, one, rest));
  const FloatVec log1p = hn::IfThenElse(lost, e, hn::Mul(log_of(d, above), ratio));
  return hn::Add(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Zero(d)), log1p);
}

/// Row t of one vector of channels before its states: what they all share.
struct ScanRow {
  FloatVec u, step, step_u;  ///< `step`: softplus(delta + delta_bias).
};

template <class Part>
HWY_INLINE ScanRow scan_row(Floats d, const ScanInputs& in, std::int64_t row, std::int64_t c,
                            Part part) {
  const auto* delta = static_cast<const float*>(in.delta) + row * in.delta_stride;
  const auto* u = static_cast<const float*>(in.u) + row * in.u_stride;
  const FloatVec bias = load(d, in.delta_bias + c, part);
  ScanRow at;
  at.u = load(d, u + c, part);
  at.step = softplus(d, hn::Add(load(d, delta + c, part), bias));
  at.step_u = hn::Mul(at.step, at.u);
  return at;
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
