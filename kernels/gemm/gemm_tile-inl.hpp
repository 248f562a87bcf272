// What a product is made of, compiled once per instruction set (no `#pragma once`: Highway includes
// this file again for each): operands rearranged into panels, and the tile of C in registers.
//
// A panel of width w holds k rows of w elements: column i of op(A) for w rows, or row i of op(B)
// for w columns, one after the other, as the tile reads them (Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication", 2008).
#if defined(TRAIN_KERNELS_GEMM_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_GEMM_TILE_INL
#undef TRAIN_KERNELS_GEMM_TILE_INL
#else
#define TRAIN_KERNELS_GEMM_TILE_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

constexpr std::int64_t kLanes = HWY_LANES(float);  // A constant on x86.
/// The sums of a tile fill 24 of 32 registers, or 12 of 16.
constexpr int kTileRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kTileVectors = 3;
constexpr std::int64_t kBlock = 4;  // Floats of 128 bits, inside which elements change places.

/// Four elements of every fourth of Lanes(d) rows, which lie `stride` apart.
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

/// A panel from rows of k elements, `stride` apart, one for each of its columns: the first `count`
/// of them, the others are zero. d has as many lanes as the panel is wide, or a part of that.
template <class D>
HWY_INLINE void pack_across(D d, const float* from, std::int64_t stride, std::int64_t k,
                            std::int64_t count, float* to, std::int64_t width) {
  constexpr std::int64_t line = 16;  // Of a cache, used up while it is near.
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  const std::int64_t whole = count / lanes * lanes;
  const std::int64_t fours = k / kBlock * kBlock;
  for (std::int64_t first = 0; first < fours; first += line) {
    const std::int64_t last = std::min(fours, first + line);
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

/// One row of a panel: `count` elements, and zeros up to `vectors` vectors.
template <int vectors>
HWY_INLINE void pack_row(const float* from, std::int64_t count, float* to) {
  const Floats d;
  constexpr std::int64_t width = vectors * kLanes;
  if (count == width) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      hn::Store(hn::LoadU(d, from + v * kLanes), d, to + v * kLanes);
    }
    return;
  }
  std::copy_n(from, count, to);
  std::fill_n(to + count, width - count, 0.0F);
}

/// The panels of `rows` rows of op(A), kTileRows each, where A lies transposed: rows of op(A) are
/// neighbours in memory. The panels are `to_panel` apart, the last one is filled up with zeros.
HWY_INLINE void pack_transposed_a(const float* a, std::int64_t stride, std::int64_t rows,
                                  std::int64_t k, float* to, std::int64_t to_panel) {
  const hn::CappedTag<float, kTileRows> d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr std::int64_t line = 16;  // Elements.
  constexpr std::int64_t ahead = 8;
  constexpr std::int64_t together = 128;  // Rows of op(A): one stream of memory for each i.
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t last = std::min(rows, first + together);
    const std::int64_t whole = last / kTileRows * kTileRows;
    float* panel = to + first / kTileRows * to_panel;
    for (std::int64_t i = 0; i < k; ++i) {
      const float* from = a + i * stride + first;
      for (std::int64_t row = 0; row < whole - first; row += line) {
        hwy::Prefetch(from + ahead * stride + row);
      }
      float* out = panel + i * kTileRows;
      for (std::int64_t row = 0; row < whole - first; row += kTileRows) {
        for (std::int64_t j = 0; j < kTileRows; j += lanes) {
          hn::StoreU(hn::LoadU(d, from + row + j), d, out + j);
        }
        out += to_panel;
      }
      if (whole < last) {
        std::copy_n(a + i * stride + whole, last - whole, out);
        std::fill_n(out + last - whole, kTileRows - (last - whole), 0.0F);
      }
    }
  }
}

/// C (+)= kTileRows rows of op(A) times a panel of B: kTileRows x (vectors vectors), in registers
/// over all k. `packed`: the rows are a panel; otherwise they lie as in memory, step is 1.
/// Every element is one chain of fused multiply-adds in the order of k, and then one addition:
/// its bits depend on nothing else.
template <int vectors, bool packed>
HWY_NOINLINE void multiply_tile(std::int64_t k, const float* HWY_RESTRICT a, std::int64_t lda,
                                const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                                std::int64_t ldc, bool add) {
  const Floats d;
  FloatVec sum[kTileRows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = hn::Zero(d);
      hwy::Prefetch(c + r * ldc + v * kLanes);
    }
  }
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < k; ++i) {
    FloatVec right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      right[v] = hn::Load(d, b + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const FloatVec left = hn::Set(d, packed ? a[r] : a[r * lda]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
      }
    }
    a += packed ? kTileRows : 1;
    b += vectors * kLanes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* to = c + r * ldc + v * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
