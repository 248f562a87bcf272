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

HWY_INLINE Activated activated(Floats d, ActivationKind kind, FloatVec x) {
  switch (kind) {
    case ActivationKind::silu:
      return silu_at(d, x);
    case ActivationKind::gelu:
      return gelu_at(d, x);
    case ActivationKind::gelu_tanh:
      return gelu_tanh_at(d, x);
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
    const FloatVec value = activated(d, p.kind, load(d, x + i, part)).value;
    store(up == nullptr ? value : hn::Mul(value, load(d, up + i, part)), d, y + i, part);
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
    const Activated at = activated(d, p.kind, load(d, x + i, part));
    const FloatVec gradient = load(d, dy + i, part);
    if (up == nullptr) {
      store(at.value, d, y + i, part);
      store(hn::Mul(gradient, at.slope), d, dx + i, part);
      return;
    }
    const FloatVec u = load(d, up + i, part);
    store(hn::Mul(at.value, u), d, y + i, part);
    store(hn::Mul(hn::Mul(gradient, u), at.slope), d, dx + i, part);
    store(hn::Mul(gradient, at.value), d, dup + i, part);
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
