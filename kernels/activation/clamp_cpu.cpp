#include "kernels/activation/clamp.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/clamp_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void clamp_forward_row(const ClampForwardParams& p, std::int64_t row) {
  const auto* x = static_cast<const float*>(p.x) + row * p.x_stride;
  auto* y = static_cast<float*>(p.y) + row * p.y_stride;
  const Floats d;
  const FloatVec high = hn::Set(d, p.bound);
  const FloatVec low = hn::Neg(high);
  each_vector(0, p.cols, [&](std::int64_t i, auto part) {
    const FloatVec value = load(d, x + i, part);
    const FloatVec below = hn::IfThenElse(hn::Gt(value, high), high, value);
    store(hn::IfThenElse(hn::Lt(value, low), low, below), d, y + i, part);
  });
}

void clamp_backward_row(const ClampBackwardParams& p, std::int64_t row) {
  const auto* x = static_cast<const float*>(p.x) + row * p.x_stride;
  const auto* dy = static_cast<const float*>(p.dy) + row * p.dy_stride;
  auto* dx = static_cast<float*>(p.dx) + row * p.dy_stride;
  const Floats d;
  const FloatVec high = hn::Set(d, p.bound);
  const FloatVec low = hn::Neg(high);
  each_vector(0, p.cols, [&](std::int64_t i, auto part) {
    const FloatVec value = load(d, x + i, part);
    const auto inside = hn::And(hn::Gt(value, low), hn::Lt(value, high));
    store(hn::IfThenElseZero(inside, load(d, dy + i, part)), d, dx + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(clamp_forward_row);
HWY_EXPORT(clamp_backward_row);

void clamp_forward(const ClampForwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(clamp_forward_row);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { one(p, row); });
}

void clamp_backward(const ClampBackwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(clamp_backward_row);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { one(p, row); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
