// Building blocks of both attention passes, compiled once per instruction set (no `#pragma once`:
// Highway includes this file again for each): small matrix products on padded scratch, and row
// softmax.
#if defined(TRAIN_KERNELS_ATTENTION_BLOCKS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#undef TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#else
#define TRAIN_KERNELS_ATTENTION_BLOCKS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/attention/attention_scratch.hpp"
#include "kernels/simd-inl.hpp"
#include "kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Part of a block product that the causal mask makes unnecessary. Query i of the block sees keys j
/// <= i + BlockProduct::seen.
enum class Causal : std::uint8_t {
  none,     ///< Everything is computed.
  scores,   ///< C has queries as rows, keys as columns; elements masked for a whole tile are not
            ///< written.
  queries,  ///< A has queries as rows, keys as columns; masked elements are zero and are not read.
  keys,     ///< A has keys as rows, queries as columns; masked elements are zero and are not read.
};

/// C[m,n] = A B (+ C if accumulate). A is read element by element, so it may have any strides and a
/// transposed A costs nothing. Rows of B and C are contiguous; n is a multiple of 16.
struct BlockProduct {
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t m, n, k;
  bool accumulate;
  Causal causal = Causal::none;
  std::int64_t seen = 0;  ///< Keys visible to query 0, less 1.
};

/// Computes one tile of C, `rows` x (`vectors` vectors), in registers over all of k.
template <int rows, int vectors>
HWY_INLINE void product_tile(const BlockProduct& p, std::int64_t i, std::int64_t j) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t begin = 0;
  std::int64_t end = p.k;
  if (p.causal == Causal::queries) {
    end = std::min(end, i + rows + p.seen);
  } else if (p.causal == Causal::keys) {
    begin = std::clamp<std::int64_t>(i - p.seen, 0, end);
  }
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
  for (std::int64_t k = begin; k < end; ++k) {
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
  // Largest number of rows that fits the registers beside a row of B: reuses each element of B
  // (from L2) most often. Four rows also saturate the FMA units; two do not.
  constexpr int tile_rows = 6;
  constexpr int few_rows = 4;
  std::int64_t i = 0;
  if (p.causal == Causal::scores) {
    i = std::clamp<std::int64_t>(j - p.seen, 0, p.m);
  }
  for (; i + tile_rows <= p.m && p.m - i != std::int64_t{2} * few_rows; i += tile_rows) {
    product_tile<tile_rows, vectors>(p, i, j);
  }
  for (; i + few_rows <= p.m; i += few_rows) {
    product_tile<few_rows, vectors>(p, i, j);
  }
  for (; i + 2 <= p.m; i += 2) {
    product_tile<2, vectors>(p, i, j);
  }
  if (i < p.m) {
    product_tile<1, vectors>(p, i, j);
  }
}

static HWY_NOINLINE void multiply_block(const BlockProduct& p) {
  constexpr int wide = HWY_TARGET == HWY_AVX3 ? 4 : 2;  // Limited by the registers.
  constexpr int narrow = 2;  // Saturates the FMA units, and skips more above the diagonal.
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const std::int64_t whole = p.causal == Causal::scores ? std::min(p.n, p.seen + 1) : p.n;
  std::int64_t j = 0;
  for (; j + wide * lanes <= whole; j += wide * lanes) {
    product_columns<wide>(p, j);
  }
  for (; j + narrow * lanes <= p.n; j += narrow * lanes) {
    product_columns<narrow>(p, j);
  }
  for (; j < p.n; j += lanes) {
    product_columns<1>(p, j);
  }
}

/// Copies rows of `cols` elements to rows of `padded`, filled up with zeros.
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

/// Writes the transpose [cols, padded_rows] of rows of `cols` elements; columns past `rows` are
/// zero.
HWY_INLINE void pack_transposed(const float* from, std::int64_t from_row, float* to,
                                std::int64_t rows, std::int64_t cols, std::int64_t padded_rows) {
  pack_across(Floats(), from, from_row, cols, rows, to, padded_rows);
}

/// Score row: [begin, end) is visible, the rest of [0, padded) is masked.
struct ScoreRow {
  float* scores;
  std::int64_t begin, end, padded;
};

/// Tail of a score row with `count` visible scores. Whole vectors are read and written, which is
/// faster than masked access, and masked elements become zero.
struct Padded {
  std::size_t count;
};
HWY_INLINE FloatVec counted_or(FloatVec v, FloatVec other, Floats d, Padded part) {
  return hn::IfThenElse(hn::FirstN(d, part.count), v, other);
}
HWY_INLINE FloatVec load(Floats d, const float* p, Padded part) {
  return counted_or(hn::LoadU(d, p), hn::Zero(d), d, part);
}
HWY_INLINE void store(FloatVec v, Floats d, float* p, Padded part) {
  hn::StoreU(counted_or(v, hn::Zero(d), d, part), d, p);
}

/// Applies each_sixteen() to the visible scores.
template <class Body>
HWY_INLINE void each_seen(const ScoreRow& row, const Body& body) {
  constexpr std::int64_t count = Floats16::count;
  constexpr std::int64_t lanes = Floats16::lanes;
  const std::int64_t whole = row.begin + (row.end - row.begin) / count * count;
  if (whole == row.end || whole + count > row.padded) {
    each_sixteen(row.begin, row.end, body);
    return;
  }
  each_sixteen(row.begin, whole, body);
  const auto left = static_cast<std::size_t>(row.end - whole);
  body(whole, Padded{HWY_MIN(left, std::size_t{lanes})}, std::integral_constant<int, 0>());
  if constexpr (Floats16::vectors == 2) {
    body(whole + lanes, Padded{left - HWY_MIN(left, std::size_t{lanes})},
         std::integral_constant<int, 1>());
  }
}

/// Writes zeros to masked elements.
HWY_INLINE void clear_unseen(const ScoreRow& row, float* values) {
  std::fill(values, values + row.begin, 0.0F);
  std::fill(values + row.end, values + row.padded, 0.0F);
}

/// Gives scores of hidden keys, in a row that begins with key `first`, the exponential 0.
HWY_INLINE void hide_scores(const HiddenKeys& hidden, std::int64_t first, const ScoreRow& row) {
  const std::int64_t begin = std::clamp(hidden.begin - first, row.begin, row.end);
  const std::int64_t end = std::clamp(hidden.end - first, begin, row.end);
  std::fill(row.scores + begin, row.scores + end, -std::numeric_limits<float>::infinity());
}

/// Turns visible scores into exp(capped(scale * score) - largest), masked ones into zeros. Returns
/// the sum; *largest_scaled is the largest exponent.
HWY_INLINE float exponentiate_scores(const ScoreRow& row, float scale, float softcap,
                                     float* largest_scaled) {
  float* scores = row.scores;
  const Floats d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats16 largest(kLowest);
  each_seen(row, [&](std::int64_t i, auto part, auto which) {
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
  each_seen(row, [&](std::int64_t i, auto part, auto which) {
    const FloatVec e = exp_of_negative(d, hn::Sub(load(d, scores + i, part), shift));
    sums[which] = hn::Add(sums[which], counted_or(e, hn::Zero(d), d, part));
    store(e, d, scores + i, part);
  });
  clear_unseen(row, scores);
  return sum_of(sums);
}

/// Softmax of a row: exponentials relative to `largest` add up to `sum`, and a weight is `factor`
/// times its exponential.
struct RowSoftmax {
  float largest, sum, factor;
};

/// Divides by the row's sum; with a sink, by that and the sink's own exponential, relative to the
/// larger of both maxima.
HWY_INLINE RowSoftmax divided_by_sum(float largest, float sum, const float* sink) {
  if (sink == nullptr) {
    return {.largest = largest, .sum = sum, .factor = 1.0F / sum};
  }
  const Floats d;
  const auto exp_of_scalar = [&](float x) {
    return hn::GetLane(exp_of_negative(d, hn::Set(d, x)));
  };
  const float above = std::max(largest, *sink);
  const float keep = exp_of_scalar(largest - above);
  const float total = sum * keep + exp_of_scalar(*sink - above);
  return {.largest = above, .sum = total, .factor = keep / total};
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
