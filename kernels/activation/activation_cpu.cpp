#include "kernels/activation/activation.hpp"

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/activation/normal-inl.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void gelu_forward_range(const float* x, float* y, std::int64_t begin, std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec v = load(d, x + i, part);
    store(hn::Mul(v, normal(d, v).cdf), d, y + i, part);
  });
}

/// gelu'(x) = Phi(x) + x phi(x).
void gelu_backward_range(const GeluBackwardParams& p, std::int64_t begin, std::int64_t end) {
  const auto* x = static_cast<const float*>(p.x);
  const auto* dy = static_cast<const float*>(p.dy);
  auto* dx = static_cast<float*>(p.dx);
  auto* y = static_cast<float*>(p.y);
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec v = load(d, x + i, part);
    const Normal at = normal(d, v);
    const FloatVec slope = hn::MulAdd(v, at.density, at.cdf);
    store(hn::Mul(load(d, dy + i, part), slope), d, dx + i, part);
    if (y != nullptr) {
      store(hn::Mul(v, at.cdf), d, y + i, part);
    }
  });
}

void swiglu_forward_range(const float* gate, const float* up, float* y, std::int64_t begin,
                          std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = load(d, gate + i, part);
    const FloatVec silu = hn::Mul(g, sigmoid(d, g));
    store(hn::Mul(silu, load(d, up + i, part)), d, y + i, part);
  });
}

/// silu'(g) = s + g s (1 - s), s = sigmoid(g).
void swiglu_backward_range(const SwigluBackwardParams& p, std::int64_t begin, std::int64_t end) {
  const auto* gate = static_cast<const float*>(p.gate);
  const auto* up = static_cast<const float*>(p.up);
  const auto* dy = static_cast<const float*>(p.dy);
  auto* dgate = static_cast<float*>(p.dgate);
  auto* dup = static_cast<float*>(p.dup);
  auto* y = static_cast<float*>(p.y);
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = load(d, gate + i, part);
    const FloatVec s = sigmoid(d, g);
    const FloatVec silu = hn::Mul(g, s);
    const FloatVec slope = hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0F), s), s);
    const FloatVec gradient = load(d, dy + i, part);
    const FloatVec u = load(d, up + i, part);
    store(hn::Mul(hn::Mul(gradient, u), slope), d, dgate + i, part);
    store(hn::Mul(gradient, silu), d, dup + i, part);
    if (y != nullptr) {
      store(hn::Mul(silu, u), d, y + i, part);
    }
  });
}

void sigmoid_gate_forward_row(const float* x, const float* gate, float* y, std::int64_t count) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    const FloatVec s = sigmoid(d, load(d, gate + i, part));
    store(hn::Mul(load(d, x + i, part), s), d, y + i, part);
  });
}

void sigmoid_gate_backward_row(const float* x, const float* gate, const float* dy, float* dx,
                               float* dgate, std::int64_t count) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    const FloatVec s = sigmoid(d, load(d, gate + i, part));
    const FloatVec gradient = load(d, dy + i, part);
    const FloatVec slope = hn::Mul(s, hn::Sub(hn::Set(d, 1.0F), s));
    const FloatVec gate_gradient = hn::Mul(hn::Mul(gradient, load(d, x + i, part)), slope);
    store(hn::Mul(gradient, s), d, dx + i, part);
    store(gate_gradient, d, dgate + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(gelu_forward_range);
HWY_EXPORT(gelu_backward_range);
HWY_EXPORT(swiglu_forward_range);
HWY_EXPORT(swiglu_backward_range);
HWY_EXPORT(sigmoid_gate_forward_row);
HWY_EXPORT(sigmoid_gate_backward_row);

void gelu_forward(const GeluForwardParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(gelu_forward_range),
             static_cast<const float*>(p.x), static_cast<float*>(p.y));
}

void gelu_backward(const GeluBackwardParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(gelu_backward_range), p);
}

void swiglu_forward(const SwigluForwardParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(swiglu_forward_range),
             static_cast<const float*>(p.gate), static_cast<const float*>(p.up),
             static_cast<float*>(p.y));
}

void swiglu_backward(const SwigluBackwardParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(swiglu_backward_range), p);
}

namespace {

/// Address at which row (token, head) starts in a tensor.
template <class T>
T* row_of(T* data, const RowLayout& layout, std::int64_t row, std::int64_t heads) {
  return data + row / heads * layout.outer_stride + row % heads * layout.inner_stride;
}

}  // namespace

void sigmoid_gate_forward(const SigmoidGateForwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(sigmoid_gate_forward_row);
  each_row(threads, p.tokens * p.heads, p.head_dim, [&](std::int64_t row) {
    one(row_of(static_cast<const float*>(p.x), p.x_layout, row, p.heads),
        row_of(static_cast<const float*>(p.gate), p.gate_layout, row, p.heads),
        row_of(static_cast<float*>(p.y), p.y_layout, row, p.heads), p.head_dim);
  });
}

void sigmoid_gate_backward(const SigmoidGateBackwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(sigmoid_gate_backward_row);
  each_row(threads, p.tokens * p.heads, p.head_dim, [&](std::int64_t row) {
    one(row_of(static_cast<const float*>(p.x), p.x_layout, row, p.heads),
        row_of(static_cast<const float*>(p.gate), p.gate_layout, row, p.heads),
        row_of(static_cast<const float*>(p.dy), p.dy_layout, row, p.heads),
        row_of(static_cast<float*>(p.dx), p.dx_layout, row, p.heads),
        row_of(static_cast<float*>(p.dgate), p.dgate_layout, row, p.heads), p.head_dim);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
