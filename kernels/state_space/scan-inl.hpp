// Vector code of both passes of the selective scan, compiled once per instruction set, as
// simd-inl.hpp.
#if defined(TRAIN_KERNELS_SCAN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_SCAN_INL
#undef TRAIN_KERNELS_SCAN_INL
#else
#define TRAIN_KERNELS_SCAN_INL
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "kernels/simd-inl.hpp"
#include "kernels/state_space/selective_scan.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// log(1 + exp(x)), 4 ulp: x itself where x is large, exp(x) where it is small. NaN stays NaN.
HWY_INLINE FloatVec softplus(Floats d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec e = exp_of_negative(d, hn::Neg(hn::Abs(x)));
  const FloatVec above = hn::Add(one, e);
  // log(1 + e) = log(above) e / (above - 1): the rounding of `above` cancels (Kahan).
  const FloatVec rest = hn::Sub(above, one);
  const auto lost = hn::Eq(rest, hn::Zero(d));
  const FloatVec ratio = hn::Div(e, hn::IfThenElse(lost, one, rest));
  const FloatVec log1p = hn::IfThenElse(lost, e, hn::Mul(log_of(d, above), ratio));
  return hn::Add(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Zero(d)), log1p);
}

/// exp of what may be any number.
struct AnyExp {
  HWY_INLINE FloatVec operator()(Floats d, FloatVec x) const { return exp_of_negative(d, x); }
};
/// The same where |x| <= kNormalPower is known.
struct NormalExp {
  HWY_INLINE FloatVec operator()(Floats d, FloatVec x) const { return exp_of_normal(d, x); }
};

/// The rows of a chunk in a block of channels.
struct ScanPiece {
  const float* rates;  ///< [states, kScanChannels].
  std::int64_t begin, end, c0, width;

  [[nodiscard]] std::int64_t rows() const { return end - begin; }
  /// Row t of a matrix, from the block's first channel on.
  [[nodiscard]] const float* of(const void* matrix, std::int64_t stride, std::int64_t t) const {
    return static_cast<const float*>(matrix) + (begin + t) * stride + c0;
  }
  [[nodiscard]] float* of(void* matrix, std::int64_t stride, std::int64_t t) const {
    return static_cast<float*>(matrix) + (begin + t) * stride + c0;
  }
};

/// Arrays that all states of a piece read, [vectors of channels, kScanChunk, lanes] each: rows are
/// gone through whole, as memory has them, states by vectors.
struct ScanRows {
  static constexpr std::int64_t lanes = HWY_LANES(float);
  static constexpr std::int64_t size = kScanChunk * kScanChannels;

  float* steps;    ///< D = softplus(delta + delta_bias).
  float* steps_u;  ///< D u.
  float* sums;     ///< Sums of y, state by state; begins as d u.

  /// Row t of the vector at channel i.
  static constexpr std::int64_t place(std::int64_t i, std::int64_t t) {
    return i * kScanChunk + t * lanes;
  }
};

/// The greatest of steps, which are not negative; NaN if one is.
struct MostStep {
  using Bits = hn::RebindToUnsigned<Floats>;
  hn::Vec<Bits> most;

  /// Takes the greatest lane by lane of `rows` vectors that lie one behind the other.
  HWY_INLINE MostStep(Floats d, const float* steps, std::int64_t rows) : most(hn::Zero(Bits())) {
    for (std::int64_t t = 0; t < rows; ++t) {
      most = hn::Max(most, hn::BitCast(Bits(), hn::Load(d, steps + t * ScanRows::lanes)));
    }
  }
  /// Whether exp of each step times these rates is a normal number.
  HWY_INLINE bool gives_normal(Floats d, const float* rates, std::int64_t count) const {
    const FloatVec least = hn::Set(d, -kNormalPower);
    auto all = hn::Ge(hn::Mul(hn::BitCast(d, most), hn::Load(d, rates)), least);
    for (std::int64_t n = 1; n < count; ++n) {
      const FloatVec power = hn::Mul(hn::BitCast(d, most), hn::Load(d, rates + n * kScanChannels));
      all = hn::And(all, hn::Ge(power, least));
    }
    return hn::AllTrue(d, all);
  }
};

/// Calls body(n, count) for all states, four at a time where there are four: their exponentials are
/// independent, and the rows' sums pass through memory less often. `count` is a constant.
template <class Body>
HWY_INLINE void each_four_states(std::int64_t states, const Body& body) {
  std::int64_t n = 0;
  for (; n + 4 <= states; n += 4) {
    body(n, std::integral_constant<std::int64_t, 4>());
  }
  for (; n < states; ++n) {
    body(n, std::integral_constant<std::int64_t, 1>());
  }
}

/// Asks for a row's part in the block, `write`: to write it.
template <bool write = false>
HWY_INLINE void fetch_row(const float* row, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += 16) {
    __builtin_prefetch(row + i, write ? 1 : 0);
  }
}

/// The vector at channel i of row t before its states; returns delta + delta_bias.
template <class Part>
HWY_INLINE FloatVec begin_row(Floats d, const ScanInputs& in, const ScanPiece& piece,
                              const ScanRows& rows, std::int64_t t, std::int64_t i, Part part) {
  const FloatVec bias = load(d, in.delta_bias + piece.c0 + i, part);
  const FloatVec raw = hn::Add(load(d, piece.of(in.delta, in.delta_stride, t) + i, part), bias);
  const FloatVec u = load(d, piece.of(in.u, in.u_stride, t) + i, part);
  const FloatVec step = softplus(d, raw);
  const std::int64_t place = ScanRows::place(i, t);
  hn::Store(step, d, rows.steps + place);
  hn::Store(hn::Mul(step, u), d, rows.steps_u + place);
  hn::Store(hn::Mul(load(d, in.d + piece.c0 + i, part), u), d, rows.sums + place);
  return raw;
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
