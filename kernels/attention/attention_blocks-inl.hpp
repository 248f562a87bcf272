// What both passes of attention are made of, compiled once per instruction set (no `#pragma once`:
// Highway includes this file again for each): small matrix products on padded scratch, and the
// softmax of a row.
#if defined(TRAIN_KERNELS_ATTENTION_BLOCKS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#undef TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#else
#define TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/simd-inl.hpp"
#include "kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// C[m,n] = A B (+ C if accumulate). A is read element by element, so any strides will do and a
/// transposed A costs nothing; rows of B and C are contiguous, and n is a multiple of 16.
struct BlockProduct {
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t m, n, k;
  bool accumulate;
};

/// One tile of C, `rows` x (`vectors` vectors), held in registers over the whole of k.
template <int rows, int vectors>
HWY_INLINE void product_tile(const BlockProduct& p, std::int64_t i, std::int64_t j) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* a = p.a + i * p.a_row;
  const float* b = p.b + j;
  float* c = p.c + i * p.c_row + j;
  FloatVec sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = p.accumulate ? hn::LoadU(d, c + r * p.c_row + v * lanes) : hn::Zero(d);
    }
  }
  for (std::int64_t k = 0; k < p.k; ++k) {
    FloatVec right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = hn::LoadU(d, b + k * p.b_row + v * lanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const FloatVec left = hn::Set(d, a[r * p.a_row + k * p.a_column]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      hn::StoreU(sum[r][v], d, c + r * p.c_row + v * lanes);
    }
  }
}

template <int vectors>
HWY_INLINE void product_columns(const BlockProduct& p, std::int64_t j) {
  // As many rows as the registers hold beside a row of B: each element of B that comes from the
  // second cache is used so often.
  constexpr int tile_rows = 6;
  std::int64_t i = 0;
  for (; i + tile_rows <= p.m; i += tile_rows) {
    product_tile<tile_rows, vectors>(p, i, j);
  }
  for (; i + 2 <= p.m; i += 2) {
    product_tile<2, vectors>(p, i, j);
  }
  if (i < p.m) {
    product_tile<1, vectors>(p, i, j);
  }
}

static HWY_NOINLINE void multiply_block(const BlockProduct& p) {
  constexpr int wide = HWY_TARGET == HWY_AVX3 ? 4 : 2;  // What the registers hold.
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  std::int64_t j = 0;
  for (; j + wide * lanes <= p.n; j += wide * lanes) {
    product_columns<wide>(p, j);
  }
  for (; j < p.n; j += lanes) {
    product_columns<1>(p, j);
  }
}

/// Rows of `cols` elements to rows of `padded`, the rest zero.
HWY_INLINE void pack_rows(const float* from, std::int64_t from_row, float* to, std::int64_t rows,
                          std::int64_t cols, std::int64_t padded, float scale) {
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    each_vector(0, cols, [&](std::int64_t c, auto part) {
      const FloatVec v = load(d, from + row * from_row + c, part);
      store(hn::Mul(hn::Set(d, scale), v), d, to + row * padded + c, part);
    });
    std::fill(to + row * padded + cols, to + (row + 1) * padded, 0.0F);
  }
}

/// The transpose [cols, padded_rows] of rows of `cols` elements; columns past `rows` are zero.
HWY_INLINE void pack_transposed(const float* from, std::int64_t from_row, float* to,
                                std::int64_t rows, std::int64_t cols, std::int64_t padded_rows) {
  pack_across(Floats(), from, from_row, cols, rows, to, padded_rows);
}

/// A row of scores: those of [begin, end) are seen, the rest of [0, padded) is not.
struct ScoreRow {
  float* scores;
  std::int64_t begin, end, padded;
};

/// Turns the seen scores into exp(capped(scale * score) - largest), the rest of the row into zeros.
/// Returns the sum; *largest_scaled is the largest of the exponents.
HWY_INLINE float exponentiate_scores(const ScoreRow& row, float scale, float softcap,
                                     float* largest_scaled) {
  float* scores = row.scores;
  const Floats d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats16 largest(kLowest);
  each_sixteen(row.begin, row.end, [&](std::int64_t i, auto part, auto which) {
    FloatVec scaled = hn::Mul(hn::Set(d, scale), load(d, scores + i, part));
    if (softcap > 0.0F) {
      scaled = capped(d, scaled, softcap);
    }
    store(scaled, d, scores + i, part);
    largest[which] = hn::Max(largest[which], counted_or(scaled, hn::Set(d, kLowest), d, part));
  });
  *largest_scaled = max_of(largest);
  const FloatVec shift = hn::Set(d, *largest_scaled);
  Floats16 sums(0.0F);
  each_sixteen(row.begin, row.end, [&](std::int64_t i, auto part, auto which) {
    const FloatVec e = exp_of_negative(d, hn::Sub(load(d, scores + i, part), shift));
    sums[which] = hn::Add(sums[which], counted_or(e, hn::Zero(d), d, part));
    store(e, d, scores + i, part);
  });
  std::fill(scores, scores + row.begin, 0.0F);
  std::fill(scores + row.end, scores + row.padded, 0.0F);
  return sum_of(sums);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
