#include "kernels/activation/activation.hpp"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

/// An activation and its slope.
struct Activated {
  float value, slope;
};

__device__ inline Activated silu_at(float x) {
  const float s = 1.0F / (1.0F + expf(-x));
  const float value = x * s;
  return {value, fmaf(value, 1.0F - s, s)};
}

__device__ inline Activated gelu_at(float x) {
  constexpr float inverse_sqrt_2pi = 0.39894228F;
  const float cdf = 0.5F * erfcf(-0.70710678F * x);
  return {x * cdf, fmaf(x, expf(-0.5F * x * x) * inverse_sqrt_2pi, cdf)};
}

__device__ inline Activated gelu_tanh_at(float x) {
  constexpr float sqrt_2_over_pi = 0.79788456F;
  constexpr float cubic = 0.044715F;
  const float t = tanhf(sqrt_2_over_pi * x * fmaf(cubic, x * x, 1.0F));
  const float share = fmaf(0.5F, t, 0.5F);
  const float du = sqrt_2_over_pi * fmaf(3.0F * cubic, x * x, 1.0F);
  return {x * share, fmaf(0.5F * x * fmaf(-t, t, 1.0F), du, share)};
}

__device__ inline Activated activated(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::silu:
      return silu_at(x);
    case ActivationKind::gelu:
      return gelu_at(x);
    case ActivationKind::gelu_tanh:
      return gelu_tanh_at(x);
    case ActivationKind::relu:
      break;
  }
  return isnan(x) ? Activated{x, x} : x > 0.0F ? Activated{x, 1.0F} : Activated{0.0F, 0.0F};
}

template <class T>
struct ActivationForwardEach {
  ActivationForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / p.cols;
    const std::int64_t column = i - row * p.cols;
    const std::int64_t at = row * p.x_stride + column;
    const float value = activated(p.kind, load<T>(p.x, at)).value;
    store<T>(p.y, row * p.y_stride + column, p.up == nullptr ? value : value * load<T>(p.up, at));
  }
};

template <class T>
struct ActivationBackwardEach {
  ActivationBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / p.cols;
    const std::int64_t column = i - row * p.cols;
    const std::int64_t at = row * p.x_stride + column;
    const std::int64_t from = row * p.dy_stride + column;
    const std::int64_t to = row * p.dx_stride + column;
    const Activated a = activated(p.kind, load<T>(p.x, at));
    const float gradient = load<T>(p.dy, from);
    if (p.up == nullptr) {
      store<T>(p.y, from, a.value);
      store<T>(p.dx, to, gradient * a.slope);
      return;
    }
    const float up = load<T>(p.up, at);
    store<T>(p.y, from, a.value * up);
    store<T>(p.dx, to, gradient * up * a.slope);
    store<T>(p.dup, to, gradient * a.value);
  }
};

}  // namespace

void activation_forward(CudaStream& stream, const ActivationForwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * p.cols, ActivationForwardEach<T>{p});
  });
}

void activation_backward(CudaStream& stream, const ActivationBackwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * p.cols, ActivationBackwardEach<T>{p});
  });
}

}  // namespace train::kernels::cuda
