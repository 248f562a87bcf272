#include "kernels/activation/activation.hpp"
#include "kernels/activation/activation_values.cuh"
#include "kernels/rows.cuh"

namespace train::kernels::cuda {
namespace {

/// Value and slope of an activation.
struct Activated {
  float value, slope;
};

/// x s(x), s = 1/2 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class T>
__device__ Activated gelu_tanh_at(float x) {
  constexpr float sqrt_2_over_pi = 0.79788456F;
  constexpr float cubic = 0.044715F;
  const float s = sigmoid<T>(2.0F * sqrt_2_over_pi * x * fmaf(cubic, x * x, 1.0F));
  const float du = sqrt_2_over_pi * fmaf(3.0F * cubic, x * x, 1.0F);
  return {x * s, fmaf(2.0F * x * (s * (1.0F - s)), du, s)};
}

/// a sigmoid(alpha a), a = min(x, limit), and its slope by x: 0 from the limit on, as torch 2.15
/// has it.
template <class T>
__device__ Activated clamped_silu_at(float alpha, float limit, float x) {
  const bool beyond = x >= limit;
  const float a = beyond ? limit : x;
  const float s = sigmoid<T>(alpha * a);
  return {a * s, beyond ? 0.0F : fmaf(alpha * (a * s), 1.0F - s, s)};
}

/// Factor of an activation and its slope by `up`: those of clamp(up, -limit, limit) + 1, or of up.
template <ActivationKind kind>
__device__ Activated factor_at(float limit, float up) {
  if constexpr (kind == ActivationKind::clamped_swiglu) {
    const bool outside = fabsf(up) >= limit;
    return {(outside ? copysignf(limit, up) : up) + 1.0F, outside ? 0.0F : 1.0F};
  } else {
    return {up, 1.0F};
  }
}

template <class T, ActivationKind kind, class Params>
__device__ Activated activated(const Params& p, float x) {
  if constexpr (kind == ActivationKind::silu) {
    const float s = sigmoid<T>(x);
    return {x * s, silu_slope(s, x * s)};
  } else if constexpr (kind == ActivationKind::gelu) {
    const Normal normal = normal_at<T>(x);
    return {x * normal.cdf, gelu_slope(x, normal)};
  } else if constexpr (kind == ActivationKind::gelu_tanh) {
    return gelu_tanh_at<T>(x);
  } else if constexpr (kind == ActivationKind::clamped_swiglu) {
    return clamped_silu_at<T>(p.alpha, p.limit, x);
  } else {
    return isnan(x) ? Activated{x, x} : x > 0.0F ? Activated{x, 1.0F} : Activated{0.0F, 0.0F};
  }
}

template <class T, ActivationKind kind>
struct ActivationForwardRows {
  ActivationForwardParams p;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * p.x_stride + column;
    Several<T, n> x(p.x, at);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = activated<T, kind>(p, x.value[j]).value;
    }
    if (p.up != nullptr) {
      const Several<T, n> up(p.up, at);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        x.value[j] *= factor_at<kind>(p.limit, up.value[j]).value;
      }
    }
    x.store(p.y, row * p.y_stride + column);
  }
};

template <class T, ActivationKind kind>
struct ActivationBackwardRows {
  ActivationBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * p.x_stride + column;
    const std::int64_t from = row * p.dy_stride + column;
    const std::int64_t to = row * p.dx_stride + column;
    Several<T, n> x(p.x, at);
    Several<T, n> gradient(p.dy, from);
    Several<T, n> up;
    if (p.up != nullptr) {
      up = Several<T, n>(p.up, at);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const Activated a = activated<T, kind>(p, x.value[j]);
      const float dy = gradient.value[j];
      x.value[j] = a.value;
      gradient.value[j] = dy * a.slope;
      if (p.up != nullptr) {
        const Activated factor = factor_at<kind>(p.limit, up.value[j]);
        x.value[j] = a.value * factor.value;
        gradient.value[j] = dy * factor.value * a.slope;
        up.value[j] = dy * a.value * factor.slope;
      }
    }
    x.store(p.y, from);
    gradient.store(p.dx, to);
    if (p.up != nullptr) {
      up.store(p.dup, to);
    }
  }
};

/// Calls with<T, kind>() for the element type and the activation.
template <class With>
void for_activation(DType dtype, ActivationKind kind, const With& with) {
  for_element_type(dtype, [&]<class T>() {
    switch (kind) {
      case ActivationKind::silu:
        return with.template operator()<T, ActivationKind::silu>();
      case ActivationKind::gelu:
        return with.template operator()<T, ActivationKind::gelu>();
      case ActivationKind::gelu_tanh:
        return with.template operator()<T, ActivationKind::gelu_tanh>();
      case ActivationKind::relu:
        return with.template operator()<T, ActivationKind::relu>();
      case ActivationKind::clamped_swiglu:
        return with.template operator()<T, ActivationKind::clamped_swiglu>();
    }
  });
}

}  // namespace

void activation_forward(CudaStream& stream, const ActivationForwardParams& p) {
  for_activation(p.dtype, p.kind, [&]<class T, ActivationKind kind>() {
    const bool aligned =
        aligned_to_vectors(p.x, p.up, p.y) && whole_strides<T>(p.x_stride, p.y_stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.rows, p.cols, aligned,
                                          ActivationForwardRows<T, kind>{p});
  });
}

void activation_backward(CudaStream& stream, const ActivationBackwardParams& p) {
  for_activation(p.dtype, p.kind, [&]<class T, ActivationKind kind>() {
    const bool aligned = aligned_to_vectors(p.x, p.up, p.dy, p.dx, p.dup, p.y) &&
                         whole_strides<T>(p.x_stride, p.dy_stride, p.dx_stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.rows, p.cols, aligned,
                                          ActivationBackwardRows<T, kind>{p});
  });
}

}  // namespace train::kernels::cuda
