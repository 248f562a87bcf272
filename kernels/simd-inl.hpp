// Vector helpers, compiled once per instruction set (no `#pragma once`: Highway includes this file
// again for each). Include after <hwy/highway.h>.
#if defined(TRAIN_KERNELS_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_SIMD_INL
#undef TRAIN_KERNELS_SIMD_INL
#else
#define TRAIN_KERNELS_SIMD_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/functions-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Range of a vector that counts: all of it, or the first `count` elements at the end of a range.
struct Whole {};
struct Part {
  std::size_t count;
};

HWY_INLINE FloatVec load(Floats d, const float* p, Whole) { return hn::LoadU(d, p); }
HWY_INLINE FloatVec load(Floats d, const float* p, Part part) {
  return hn::MaskedLoad(hn::FirstN(d, part.count), d, p);  // The rest is zero.
}
HWY_INLINE void store(FloatVec v, Floats d, float* p, Whole) { hn::StoreU(v, d, p); }
HWY_INLINE void store(FloatVec v, Floats d, float* p, Part part) {
  hn::BlendedStore(v, hn::FirstN(d, part.count), d, p);
}
/// v with the elements that do not count replaced by `other`: for maxima.
HWY_INLINE FloatVec counted_or(FloatVec v, FloatVec, Floats, Whole) { return v; }
HWY_INLINE FloatVec counted_or(FloatVec v, FloatVec other, Floats d, Part part) {
  return hn::IfThenElse(hn::FirstN(d, part.count), v, other);
}

/// Calls body(i, Whole or Part) for the vectors of [begin, end). Both cases run the same
/// instructions, so an element's value does not depend on its place in a vector.
template <class Body>
HWY_INLINE void each_vector(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(i, Whole{});
  }
  if (i < end) {
    body(i, Part{static_cast<std::size_t>(end - i)});
  }
}

/// Sixteen partial results of a range, whatever the vector width: element i belongs to partial
/// result i % 16. So every processor adds in the same order.
struct Floats16 {
  static constexpr std::int64_t count = 16;
  static constexpr std::int64_t lanes = HWY_LANES(float);
  static constexpr int vectors = static_cast<int>(count / lanes);  // Two on AVX2, one on AVX-512.
  static_assert(vectors == 1 || vectors == 2);

  HWY_INLINE Floats16() : Floats16(0.0F) {}
  explicit HWY_INLINE Floats16(float value) {
    for (FloatVec& v : parts) {
      v = hn::Set(Floats(), value);
    }
  }
  HWY_INLINE FloatVec& operator[](int vector) { return parts[vector]; }

  FloatVec parts[vectors];
};

/// Calls body(i, Whole or Part, which) for the vectors of [begin, end), sixteen elements at a time;
/// the vector at i belongs to part `which` of a Floats16. At the end a Part may have count 0, so
/// that its zeros reach the same partial results on every processor.
template <class Body>
HWY_INLINE void each_sixteen(std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr std::int64_t lanes = Floats16::lanes;
  using First = std::integral_constant<int, 0>;
  using Last = std::integral_constant<int, Floats16::vectors - 1>;
  std::int64_t i = begin;
  for (; i + Floats16::count <= end; i += Floats16::count) {
    body(i, Whole{}, First());
    if constexpr (Floats16::vectors == 2) {
      body(i + lanes, Whole{}, Last());
    }
  }
  if (i < end) {
    const auto left = static_cast<std::size_t>(end - i);
    body(i, Part{HWY_MIN(left, std::size_t{lanes})}, First());
    if constexpr (Floats16::vectors == 2) {
      body(i + lanes, Part{left - HWY_MIN(left, std::size_t{lanes})}, Last());
    }
  }
}

/// Reduces the sixteen by halves: eight, four, two, one; the upper half is op's left operand.
template <class Op>
HWY_INLINE float folded(const Floats16& x, const Op& op) {
  const hn::FixedTag<float, 4> four;
#if HWY_CAP_GE512
  const hn::FixedTag<float, 8> eight;
  const auto of_eight = op(hn::UpperHalf(eight, x.parts[0]), hn::LowerHalf(eight, x.parts[0]));
#else
  const auto of_eight = op(x.parts[1], x.parts[0]);
#endif
  const auto of_four = op(hn::UpperHalf(four, of_eight), hn::LowerHalf(four, of_eight));
  const auto of_two = op(of_four, hn::Shuffle1032(of_four));
  return hn::GetLane(op(of_two, hn::Shuffle2301(of_two)));
}

HWY_INLINE float sum_of(const Floats16& x) {
  return folded(x, [](auto upper, auto lower) { return hn::Add(upper, lower); });
}
/// Sums of four, each as sum_of() has it.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sums_of_four(const Floats16 (&x)[4]) {
  const hn::FixedTag<float, 4> four;
  hn::Vec<hn::FixedTag<float, 4>> of_four[4];
  for (int i = 0; i < 4; ++i) {
#if HWY_CAP_GE512
    const hn::FixedTag<float, 8> eight;
    const auto of_eight =
        hn::Add(hn::UpperHalf(eight, x[i].parts[0]), hn::LowerHalf(eight, x[i].parts[0]));
#else
    const auto of_eight = hn::Add(x[i].parts[1], x[i].parts[0]);
#endif
    of_four[i] = hn::Add(hn::UpperHalf(four, of_eight), hn::LowerHalf(four, of_eight));
  }
  const auto pairs = [&](int i) HWY_ATTR {
    return hn::Add(hn::InterleaveUpper(four, of_four[i], of_four[i + 1]),
                   hn::InterleaveLower(four, of_four[i], of_four[i + 1]));
  };
  const auto lower = pairs(0);
  const auto upper = pairs(2);
  return hn::Add(hn::ConcatLowerLower(four, upper, lower),
                 hn::ConcatUpperUpper(four, upper, lower));
}
/// If one of two is NaN the lower one is taken: max_of() may lose a NaN, equally on all processors.
HWY_INLINE float max_of(const Floats16& x) {
  return folded(x, [](auto upper, auto lower) { return hn::Max(upper, lower); });
}

/// 1 / (1 + exp(-x)), without overflow at either end.
HWY_INLINE FloatVec sigmoid(Floats d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec e = exp_of_negative(d, hn::Neg(hn::Abs(x)));
  const FloatVec numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

/// cap tanh(x / cap): logit soft-capping of Gemma 2 (Gemma Team 2024).
HWY_INLINE FloatVec capped(Floats d, FloatVec x, float cap) {
  return hn::Mul(hn::Set(d, cap), tanh_of(d, hn::Mul(x, hn::Set(d, 1.0F / cap))));
}

/// Rotates the pairs (i, i + pairs): "half", the usual pairing of published weights.
HWY_INLINE void rotate_halves(float* x, const float* cos, const float* sin, std::int64_t pairs,
                              float direction) {
  const Floats d;
  each_vector(0, pairs, [&](std::int64_t i, auto part) {
    const FloatVec x0 = load(d, x + i, part);
    const FloatVec x1 = load(d, x + pairs + i, part);
    const FloatVec c = load(d, cos + i, part);
    const FloatVec s = hn::Mul(hn::Set(d, direction), load(d, sin + i, part));
    store(hn::Sub(hn::Mul(x0, c), hn::Mul(x1, s)), d, x + i, part);
    store(hn::Add(hn::Mul(x0, s), hn::Mul(x1, c)), d, x + pairs + i, part);
  });
}

/// Rotates `pairs` interleaved pairs; `direction` is 1, or -1 for the inverse. No fused operations,
/// so that the scalar tail has the bits of the vector body.
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
