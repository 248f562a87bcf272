// Vector code of both passes of the scan of heads, compiled once per
// instruction set, as simd-inl.hpp.
#if defined(TRAIN_KERNELS_HEAD_SCAN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_HEAD_SCAN_INL
#undef TRAIN_KERNELS_HEAD_SCAN_INL
#else
#define TRAIN_KERNELS_HEAD_SCAN_INL
#endif

#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"
#include "kernels/state_space/head_scan.hpp"
#include "kernels/state_space/scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// States of a channel in memory: whole Floats16.
HWY_INLINE std::int64_t padded_states(std::int64_t states) {
  return (states + Floats16::count - 1) / Floats16::count * Floats16::count;
}

/// Steps and decays of one row, [heads] each: D and exp(D A).
HWY_INLINE void head_steps_of_row(const HeadScanInputs& in, std::int64_t row, float* steps,
                                  float* decays) {
  const Floats d;
  const auto* delta = static_cast<const float*>(in.delta) + row * in.delta_stride;
  each_vector(0, in.heads, [&](std::int64_t h, auto part) {
    const FloatVec raw = hn::Add(load(d, delta + h, part), load(d, in.delta_bias + h, part));
    const FloatVec step = softplus(d, raw);
    // NaN stays: it is neither below nor above.
    const FloatVec low = hn::Set(d, in.least_step);
    const FloatVec high = hn::Set(d, in.most_step);
    const FloatVec above = hn::IfThenElse(hn::Lt(step, low), low, step);
    const FloatVec within = hn::IfThenElse(hn::Gt(above, high), high, above);
    const FloatVec rate = hn::Neg(exp_of(d, load(d, in.a_log + h, part)));
    store(within, d, steps + h, part);
    store(exp_of_negative(d, hn::Mul(within, rate)), d, decays + h, part);
  });
}

/// A row's b or c of a group, and zeros behind it.
HWY_INLINE void load_states(const void* matrix, std::int64_t place, std::int64_t states,
                            float* padded) {
  const auto* from = static_cast<const float*>(matrix) + place;
  const std::int64_t whole = padded_states(states);
  for (std::int64_t n = 0; n < whole; ++n) {
    padded[n] = n < states ? from[n] : 0.0F;
  }
}

/// S = decay S + x b of one channel.
HWY_INLINE FloatVec next_state(Floats d, FloatVec decay, FloatVec x, const float* b,
                               const float* before) {
  return hn::MulAdd(decay, hn::Load(d, before), hn::Mul(x, hn::Load(d, b)));
}

/// States of a head between memory, [width, states], and scratch, whose
/// channels are padded.
HWY_INLINE void load_head(const float* memory, std::int64_t width, std::int64_t states,
                          float* scratch) {
  const std::int64_t whole = padded_states(states);
  for (std::int64_t p = 0; p < width; ++p) {
    for (std::int64_t n = 0; n < whole; ++n) {
      scratch[p * whole + n] = n < states && memory != nullptr ? memory[p * states + n] : 0.0F;
    }
  }
}
HWY_INLINE void store_head(const float* scratch, std::int64_t width, std::int64_t states,
                           float* memory) {
  const std::int64_t whole = padded_states(states);
  for (std::int64_t p = 0; p < width; ++p) {
    for (std::int64_t n = 0; n < states; ++n) {
      memory[p * states + n] = scratch[p * whole + n];
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
