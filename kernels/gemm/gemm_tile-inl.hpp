// Building blocks of a product, compiled once per instruction set (no `#pragma once`: Highway
// includes this file again for each): packing of operands into panels, and the tile of C in
// registers.
//
// A panel of width w holds k rows of w elements: column i of op(A) for w rows, or row i of op(B)
// for w columns, in the order in which the tile reads them (Goto and van de Geijn, "Anatomy of
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

#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/lines_ahead.hpp"
#include "kernels/simd-inl.hpp"
#include "kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

constexpr std::int64_t kLanes = HWY_LANES(float);  // Constant on x86.
/// A tile's sums fill 24 of 32 registers, or 12 of 16.
constexpr int kTileRows = HWY_TARGET == HWY_AVX3 ? 8 : 6;
constexpr int kTileVectors = HWY_TARGET == HWY_AVX3 ? 3 : 2;
constexpr int kFewTileRows = 4;  ///< Tile height for the remaining rows at the end.
constexpr std::int64_t kSteps = 16;

/// Calls body(column, columns, vectors) for the panels of `columns` columns.
template <class Body>
HWY_INLINE void each_panel(std::int64_t columns, const Body& body) {
  std::int64_t column = 0;
  while (column < columns) {
    const std::int64_t left = columns - column;
    const std::int64_t taken = panel_vectors(divide_up(left, kLanes), kTileVectors);
    const std::int64_t width = std::min(left, taken * kLanes);
    if (taken == kTileVectors) {  // NOLINT: also 2 on some processors
      body(column, width, std::integral_constant<int, kTileVectors>());
    } else if (taken == 2) {
      body(column, width, std::integral_constant<int, 2>());
    } else {
      body(column, width, std::integral_constant<int, 1>());
    }
    column += width;
  }
}

/// Start of the panel of a row of op(A) or a column of op(B). One row of it stays empty: panels a
/// multiple of 4096 bytes apart would map to the same cache sets.
constexpr std::int64_t panel_at(std::int64_t index, std::int64_t depth) {
  return index * (depth + 1);
}

/// Writes one row of a panel: `count` elements, then zeros up to `vectors` vectors.
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

/// Source that a tile reads an operand from.
enum class Left : std::uint8_t {
  panel,
  rows,     ///< Rows of op(A) as stored.
  columns,  ///< A is transposed; a panel is packed on the way.
};
enum class Right : std::uint8_t {
  panel,
  rows,  ///< Rows of op(B) as stored; a panel is packed on the way.
};

struct Tile {
  std::int64_t k;
  const float* a;
  std::int64_t a_stride;  ///< Row stride in memory, unless it is a panel.
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t ldc;
  std::int64_t rows, columns;  ///< Rows and columns of C to write.
  bool add;
  float* a_panel;  ///< Destination of the panel packed on the way.
  float* b_panel;
  LinesAhead* ahead;  ///< Lines to prefetch, a part every kSteps of k.
};

/// Writes or adds the sums of one row; the last vector only up to C's columns.
template <int vectors>
HWY_INLINE void store_row(const FloatVec* sum, float* to, std::int64_t columns, bool add) {
  const Floats d;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    float* at = to + v * kLanes;
    const std::int64_t left = columns - v * kLanes;
    if (v + 1 < vectors || left == kLanes) {
      hn::StoreU(add ? hn::Add(hn::LoadU(d, at), sum[v]) : sum[v], d, at);
    } else {
      const auto mask = hn::FirstN(d, static_cast<std::size_t>(left));
      hn::BlendedStore(add ? hn::Add(hn::MaskedLoad(mask, d, at), sum[v]) : sum[v], mask, d, at);
    }
  }
}

/// Packs one column of op(A). It may write past the column's end, which the next column overwrites.
HWY_INLINE void copy_column(const float* from, float* to) {
  const hn::CappedTag<float, 8> d;
  static_assert(kTileRows == 8 || kTileRows == 6);
  if constexpr (kTileRows == 8) {
    hn::StoreU(hn::LoadU(d, from), d, to);
  } else {
    hn::StoreU(hn::MaskedLoad(hn::FirstN(d, kTileRows), d, from), d, to);
  }
}

/// Computes C (+)= `rows` rows of op(A) times `vectors` vectors of columns of op(B), in registers
/// over all of k. Each element is one chain of fused multiply-adds in the order of k, then one
/// addition; its bits depend on nothing else.
template <int rows, int vectors, Left left, Right right>
HWY_NOINLINE void multiply_tile(const Tile& tile) {
  constexpr std::int64_t ahead = 16;  // Prefetch distance for rows in memory, which hardware
                                      // prefetchers do not follow.
  const Floats d;
  const float* HWY_RESTRICT a = tile.a;
  const float* HWY_RESTRICT b = tile.b;
  float* HWY_RESTRICT a_panel = tile.a_panel;
  float* HWY_RESTRICT b_panel = tile.b_panel;
  const std::int64_t a_stride = tile.a_stride;
  const std::int64_t b_stride = tile.b_stride;
  FloatVec sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = hn::Zero(d);
      hwy::Prefetch(tile.c + r * tile.ldc + v * kLanes);
    }
  }
  for (std::int64_t done = 0; done < tile.k; done += kSteps) {
    tile.ahead->prefetch();
    const std::int64_t steps = std::min(kSteps, tile.k - done);
#pragma GCC unroll 1
    for (std::int64_t i = 0; i < steps; ++i) {
      FloatVec of_b[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        if constexpr (right == Right::panel) {
          of_b[v] = hn::Load(d, b + v * kLanes);
        } else {
          of_b[v] = hn::LoadU(d, b + v * kLanes);
          hwy::Prefetch(b + ahead * b_stride + v * kLanes);
          hn::Store(of_b[v], d, b_panel + v * kLanes);
        }
      }
      if constexpr (left == Left::columns) {
        hwy::Prefetch(a + ahead * a_stride);
        copy_column(a, a_panel);
        a_panel += rows;
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const FloatVec of_a = hn::Set(d, left == Left::rows ? a[r * a_stride] : a[r]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[r][v] = hn::MulAdd(of_a, of_b[v], sum[r][v]);
        }
      }
      a += left == Left::panel ? rows : left == Left::rows ? 1 : a_stride;
      b += right == Right::panel ? vectors * kLanes : b_stride;
      b_panel += vectors * kLanes;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    if (r < tile.rows) {
      store_row<vectors>(sum[r], tile.c + r * tile.ldc, tile.columns, tile.add);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
