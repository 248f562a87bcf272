// Matrix transposition, compiled once per instruction set (no `#pragma once`: Highway includes this
// file again for each).
#if defined(TRAIN_KERNELS_TRANSPOSE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_TRANSPOSE_INL
#undef TRAIN_KERNELS_TRANSPOSE_INL
#else
#define TRAIN_KERNELS_TRANSPOSE_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

constexpr std::int64_t kBlock = 4;  // Floats per 128 bits, within which elements are shuffled.

/// Loads four elements of every fourth of Lanes(d) rows, `stride` apart.
template <class D>
HWY_INLINE hn::Vec<D> four_of_each(D d, const float* from, std::int64_t stride) {
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (lanes == kBlock) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, four_of_each(half, from + lanes / 2 * stride, stride),
                       four_of_each(half, from, stride));
  }
}

/// to[i][j] = from[j * stride + i] for four i and Lanes(d) j.
template <class D>
HWY_INLINE void load_four_across(D d, const float* from, std::int64_t stride, hn::Vec<D>* to) {
  const hn::RepartitionToWide<D> pairs;
  const auto a = four_of_each(d, from, stride);
  const auto b = four_of_each(d, from + stride, stride);
  const auto c = four_of_each(d, from + 2 * stride, stride);
  const auto e = four_of_each(d, from + 3 * stride, stride);
  const auto low_ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto low_ce = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto high_ab = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto high_ce = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  to[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low_ab, low_ce));
  to[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low_ab, low_ce));
  to[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high_ab, high_ce));
  to[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high_ab, high_ce));
}

/// to[i * to_row + j] = from[j * stride + i] for four i and Lanes(d) j.
template <class D>
HWY_INLINE void transpose_four(D d, const float* from, std::int64_t stride, float* to,
                               std::int64_t to_row) {
  hn::Vec<D> columns[kBlock];
  load_four_across(d, from, stride, columns);
#pragma GCC unroll 4
  for (int i = 0; i < kBlock; ++i) {
    hn::StoreU(columns[i], d, to + i * to_row);
  }
}

/// Packs a panel from rows of k elements, `stride` apart, one per column: `count` columns, the rest
/// zero. d has as many lanes as the panel is wide, or a divisor of that.
template <class D>
HWY_INLINE void pack_across(D d, const float* from, std::int64_t stride, std::int64_t k,
                            std::int64_t count, float* to, std::int64_t width) {
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  constexpr std::int64_t kLine = 16;  // Cache line, in floats.
  const std::int64_t whole = count / lanes * lanes;
  const std::int64_t fours = k / kBlock * kBlock;
  for (std::int64_t first = 0; first < fours; first += kLine) {
    const std::int64_t last = std::min(fours, first + kLine);  // Reused while still in cache.
    for (std::int64_t j = 0; j < whole; j += lanes) {
      for (std::int64_t i = first; i < last; i += kBlock) {
        transpose_four(d, from + j * stride + i, stride, to + i * width + j, width);
      }
    }
  }
  const auto one = [&](std::int64_t i, std::int64_t j) {
    to[i * width + j] = j < count ? from[j * stride + i] : 0.0F;
  };
  for (std::int64_t i = 0; i < fours; ++i) {
    for (std::int64_t j = whole; j < width; ++j) {
      one(i, j);
    }
  }
  for (std::int64_t i = fours; i < k; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      one(i, j);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
