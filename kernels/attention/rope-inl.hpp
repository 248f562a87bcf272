// One row's rotation, compiled once per instruction set (no `#pragma once`: Highway includes this
// file again for each). Include after "kernels/simd-inl.hpp".
#if defined(TRAIN_KERNELS_ROPE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_ROPE_INL
#undef TRAIN_KERNELS_ROPE_INL
#else
#define TRAIN_KERNELS_ROPE_INL
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Rotates `pairs` interleaved pairs; `direction` is 1, or -1 for the inverse. No fused operations,
/// so that the scalar tail gives the bits of the vector body.
HWY_INLINE void rotate_row(float* x, const float* cos, const float* sin, std::int64_t pairs,
                           float direction) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    FloatVec x0;
    FloatVec x1;
    hn::LoadInterleaved2(d, x + 2 * i, x0, x1);
    const FloatVec c = hn::LoadU(d, cos + i);
    const FloatVec s = hn::Mul(hn::Set(d, direction), hn::LoadU(d, sin + i));
    const FloatVec y0 = hn::Sub(hn::Mul(x0, c), hn::Mul(x1, s));
    const FloatVec y1 = hn::Add(hn::Mul(x0, s), hn::Mul(x1, c));
    hn::StoreInterleaved2(y0, y1, d, x + 2 * i);
  }
  for (; i < pairs; ++i) {
    const float x0 = x[2 * i];
    const float x1 = x[2 * i + 1];
    const float s = direction * sin[i];
    x[2 * i] = x0 * cos[i] - x1 * s;
    x[2 * i + 1] = x0 * s + x1 * cos[i];
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
