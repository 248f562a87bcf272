// Vector code of both passes of the scan of heads, compiled once per
// instruction set, as simd-inl.hpp.
#if defined(TRAIN_KERNELS_HEAD_SCAN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_HEAD_SCAN_INL
#undef TRAIN_KERNELS_HEAD_SCAN_INL
#else
#define TRAIN_KERNELS_HEAD_SCAN_INL
#endif

#include <hwy/highway.h>

#include <algorithm>

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
  std::copy_n(static_cast<const float*>(matrix) + place, states, padded);
  std::fill_n(padded + states, padded_states(states) - states, 0.0F);
}

/// The same in its place where there is nothing behind it to be zero, else in `padded`.
HWY_INLINE const float* whole_states(const void* matrix, std::int64_t place, std::int64_t states,
                                     float* padded) {
  if (states == padded_states(states)) {
    return static_cast<const float*>(matrix) + place;
  }
  load_states(matrix, place, states, padded);
  return padded;
}

/// States of a head between memory, [width, states], and scratch, whose
/// channels are padded.
HWY_INLINE void load_head(const float* memory, std::int64_t width, std::int64_t states,
                          float* scratch) {
  const std::int64_t whole = padded_states(states);
  if (memory == nullptr) {
    std::fill_n(scratch, width * whole, 0.0F);
    return;
  }
  for (std::int64_t p = 0; p < width; ++p) {
    load_states(memory, p * states, states, scratch + p * whole);
  }
}
HWY_INLINE void store_head(const float* scratch, std::int64_t width, std::int64_t states,
                           float* memory) {
  const std::int64_t whole = padded_states(states);
  for (std::int64_t p = 0; p < width; ++p) {
    std::copy_n(scratch + p * whole, states, memory + p * states);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
