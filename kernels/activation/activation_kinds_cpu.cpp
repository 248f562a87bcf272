#include "kernels/activation/activation.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation_kinds_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/activation/normal-inl.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Value and slope of an activation at one vector.
struct Activated {
  FloatVec value, slope;
};

HWY_INLINE Activated silu_at(Floats d, FloatVec x) {
  const FloatVec s = sigmoid(d, x);
  const FloatVec value = hn::Mul(x, s);
  return {value, hn::MulAdd(value, hn::Sub(hn::Set(d, 1.0F), s), s)};
}

HWY_INLINE Activated gelu_at(Floats d, FloatVec x) {
  const Normal at = normal(d, x);
  return {hn::Mul(x, at.cdf), hn::MulAdd(x, at.density, at.cdf)};
}

/// With u = sqrt(2/pi) (x + 0.044715 x^3), t = tanh(u):
/// y = x (1 + t) / 2, y' = (1 + t) / 2 + x (1 - t^2) u' / 2.
HWY_INLINE Activated gelu_tanh_at(Floats d, FloatVec x) {
  constexpr float sqrt_2_over_pi = 0.79788456F;
  constexpr float cubic = 0.044715F;
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec half = hn::Set(d, 0.5F);
  const FloatVec root = hn::Set(d, sqrt_2_over_pi);
  const FloatVec square = hn::Mul(x, x);
  const FloatVec inner = hn::MulAdd(hn::Set(d, cubic), square, one);
  const FloatVec t = tanh_of(d, hn::Mul(root, hn::Mul(x, inner)));
  const FloatVec share = hn::MulAdd(half, t, half);
  const FloatVec du = hn::Mul(root, hn::MulAdd(hn::Set(d, 3.0F * cubic), square, one));
  const FloatVec bend = hn::Mul(hn::Mul(half, x), hn::Mul(hn::NegMulAdd(t, t, one), du));
  return {hn::Mul(x, share), hn::Add(share, bend)};
}

HWY_INLINE Activated relu_at(Floats d, FloatVec x) {
  const auto positive = hn::Gt(x, hn::Zero(d));
  const auto nan = hn::IsNaN(x);
  const FloatVec slope = hn::IfThenElse(positive, hn::Set(d, 1.0F), hn::Zero(d));
  return {hn::IfThenElse(nan, x, hn::IfThenElse(positive, x, hn::Zero(d))),
          hn::IfThenElse(nan, x, slope)};
}

/// x where it is at most `most` or NaN, else `most`.
HWY_INLINE FloatVec clamped_above(Floats d, FloatVec x, float most) {
  const FloatVec bound = hn::Set(d, most);
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
}

/// a sigmoid(alpha a), a = min(x, limit), and its slope by x: 0 from the limit on, as torch 2.15
/// has it.
HWY_INLINE Activated clamped_silu_at(Floats d, float alpha, float limit, FloatVec x) {
  const FloatVec a = clamped_above(d, x, limit);
  const FloatVec factor = hn::Set(d, alpha);
  const FloatVec s = sigmoid(d, hn::Mul(factor, a));
  const FloatVec value = hn::Mul(a, s);
  const FloatVec slope = hn::MulAdd(hn::Mul(factor, value), hn::Sub(hn::Set(d, 1.0F), s), s);
  return {value, hn::IfThenZeroElse(hn::Ge(x, hn::Set(d, limit)), slope)};
}

/// Factor of an activation and its slope by `up`: those of clamp(up, -limit, limit) + 1, or of up.
template <class Params>
HWY_INLINE Activated factor_at(Floats d, const Params& p, FloatVec up) {
  const FloatVec one = hn::Set(d, 1.0F);
  if (p.kind != ActivationKind::clamped_swiglu) {
    return {up, one};
  }
  const FloatVec least = hn::Set(d, -p.limit);
  const FloatVec above = clamped_above(d, up, p.limit);
  const auto outside = hn::Ge(hn::Abs(up), hn::Set(d, p.limit));
  return {hn::Add(hn::IfThenElse(hn::Lt(above, least), least, above), one),
          hn::IfThenZeroElse(outside, one)};
}

template <class Params>
HWY_INLINE Activated activated(Floats d, const Params& p, FloatVec x) {
  switch (p.kind) {
    case ActivationKind::silu:
      return silu_at(d, x);
    case ActivationKind::gelu:
      return gelu_at(d, x);
    case ActivationKind::gelu_tanh:
      return gelu_tanh_at(d, x);
    case ActivationKind::clamped_swiglu:
      return clamped_silu_at(d, p.alpha, p.limit, x);
    case ActivationKind::relu:
      break;
  }
  return relu_at(d, x);
}

void activation_forward_row(const ActivationForwardParams& p, std::int64_t row) {
  const auto* x = static_cast<const float*>(p.x) + row * p.x_stride;
  const auto* up = p.up == nullptr ? nullptr : static_cast<const float*>(p.up) + row * p.x_stride;
  auto* y = static_cast<float*>(p.y) + row * p.y_stride;
  const Floats d;
  each_vector(0, p.cols, [&](std::int64_t i, auto part) {
    const FloatVec value = activated(d, p, load(d, x + i, part)).value;
    if (up == nullptr) {
      store(value, d, y + i, part);
      return;
    }
    store(hn::Mul(value, factor_at(d, p, load(d, up + i, part)).value), d, y + i, part);
  });
}

void activation_backward_row(const ActivationBackwardParams& p, std::int64_t row) {
  const auto* x = static_cast<const float*>(p.x) + row * p.x_stride;
  const auto* up = p.up == nullptr ? nullptr : static_cast<const float*>(p.up) + row * p.x_stride;
  const auto* dy = static_cast<const float*>(p.dy) + row * p.dy_stride;
  auto* dx = static_cast<float*>(p.dx) + row * p.dx_stride;
  auto* dup = p.dup == nullptr ? nullptr : static_cast<float*>(p.dup) + row * p.dx_stride;
  auto* y = static_cast<float*>(p.y) + row * p.dy_stride;
  const Floats d;
  each_vector(0, p.cols, [&](std::int64_t i, auto part) {
    const Activated at = activated(d, p, load(d, x + i, part));
    const FloatVec gradient = load(d, dy + i, part);
    if (up == nullptr) {
      store(at.value, d, y + i, part);
      store(hn::Mul(gradient, at.slope), d, dx + i, part);
      return;
    }
    const Activated factor = factor_at(d, p, load(d, up + i, part));
    store(hn::Mul(at.value, factor.value), d, y + i, part);
    store(hn::Mul(hn::Mul(gradient, factor.value), at.slope), d, dx + i, part);
    store(hn::Mul(hn::Mul(gradient, at.value), factor.slope), d, dup + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(activation_forward_row);
HWY_EXPORT(activation_backward_row);

void activation_forward(const ActivationForwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(activation_forward_row);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { one(p, row); });
}

void activation_backward(const ActivationBackwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(activation_backward_row);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { one(p, row); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
