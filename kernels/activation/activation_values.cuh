#pragma once

#include <cuda_runtime.h>

#include "kernels/element.cuh"
#include "kernels/instructions.cuh"

// Functions that activations are built on, by element type. For bf16 elements the last bits of fp32
// do not matter: where the CPU's functions would take longer than the memory access, shorter ones
// are used.
namespace train::kernels::cuda {

constexpr float kLog2E = 1.44269504F;

/// 1 / (1 + exp(-x)), without overflow on either side.
template <class T>
__device__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}
template <>
__device__ inline float sigmoid<Bf16>(float x) {
  return reciprocal(1.0F + power_of_two(-kLog2E * x));
}

/// Normal distribution at x: bell = exp(-x^2 / 2), cdf = Phi(x).
struct Normal {
  float bell, cdf;
};
template <class T>
__device__ Normal normal_at(float x) {
  return {expf(x * x * -0.5F), normcdff(x)};
}
/// Phi(-a) = bell q(t), t = 1 / (1 + 0.31 a). q is the polynomial without constant term that
/// minimises the largest relative error on [0, 13.2], 5e-6 (fitted in double precision). Beyond
/// that range bell is 0.
template <>
__device__ inline Normal normal_at<Bf16>(float x) {
  constexpr float q[] = {0.12386057F,  0.12044266F, 0.13342435F,
                         0.015754894F, 0.18044118F, -0.073925970F};
  constexpr int last = 5;
  const float t = reciprocal(fmaf(0.31F, fabsf(x), 1.0F));
  const float bell = power_of_two(x * x * (-0.5F * kLog2E));
  float sum = q[last];
#pragma unroll
  for (int i = last - 1; i >= 0; --i) {
    sum = fmaf(sum, t, q[i]);
  }
  const float tail = bell * (sum * t);
  return {bell, x < 0.0F ? tail : 1.0F - tail};
}

/// gelu'(x) = Phi(x) + x phi(x).
__device__ inline float gelu_slope(float x, const Normal& normal) {
  constexpr float inverse_sqrt_2pi = 0.39894228F;
  return fmaf(x, normal.bell * inverse_sqrt_2pi, normal.cdf);
}

/// silu'(x) = s + x s (1 - s), with s = sigmoid(x) and silu = x s.
__device__ inline float silu_slope(float s, float silu) { return fmaf(silu, 1.0F - s, s); }

}  // namespace train::kernels::cuda
