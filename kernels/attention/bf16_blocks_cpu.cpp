#include "kernels/attention/bf16_blocks.hpp"

#include <algorithm>

#include "kernels/gemm/bf16_pairs-inl.hpp"

TRAIN_BEFORE_BF16
namespace train::kernels::cpu {
namespace {

/// Computes one tile of C, `rows` x (`vectors` vectors), in registers over all of k.
template <int rows, int vectors>
inline void pair_tile(const PairProduct& p, std::int64_t i, std::int64_t j) {
  std::int64_t begin = 0;
  std::int64_t end = divide_up(p.k, std::int64_t{2});
  if (p.zeros == ZeroPairs::after) {
    end = std::min(end, divide_up(i + rows + p.seen, std::int64_t{2}));
  } else if (p.zeros == ZeroPairs::before) {
    begin = std::clamp<std::int64_t>((i - p.seen) / 2, 0, end);
  }
  const Bf16Pair* a = p.a + i * p.a_row;
  const Bf16Pair* b = p.b + j;
  float* c = p.c + i * p.c_row + j;
  __m512 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] =
          p.accumulate ? _mm512_loadu_ps(c + r * p.c_row + v * kPairLanes) : _mm512_setzero_ps();
    }
  }
  for (std::int64_t k = begin; k < end; ++k) {
    __m512i right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = _mm512_loadu_si512(b + k * p.b_row + v * kPairLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[r * p.a_row + k * p.a_column]));
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = add_products(sum[r][v], left, right[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      // Pairs of zeros, which a tile may or may not contain, turn -0 into 0; so does this addition.
      _mm512_storeu_ps(c + r * p.c_row + v * kPairLanes,
                       _mm512_add_ps(sum[r][v], _mm512_setzero_ps()));
    }
  }
}

template <int vectors>
void pair_columns(const PairProduct& p, std::int64_t j) {
  constexpr int tile_rows = 6;
  constexpr int few_rows = 4;
  constexpr std::int64_t two_tiles = std::int64_t{2} * few_rows;
  std::int64_t i = p.scores ? std::clamp<std::int64_t>(j - p.seen, 0, p.m) : 0;
  for (; i + tile_rows <= p.m && p.m - i != two_tiles; i += tile_rows) {
    pair_tile<tile_rows, vectors>(p, i, j);
  }
  for (; i + few_rows <= p.m; i += few_rows) {
    pair_tile<few_rows, vectors>(p, i, j);
  }
  for (; i + 2 <= p.m; i += 2) {
    pair_tile<2, vectors>(p, i, j);
  }
  if (i < p.m) {
    pair_tile<1, vectors>(p, i, j);
  }
}

/// Loads 16 elements from `column` on, zeros from `cols` on.
__m512 load_columns(const float* row, std::int64_t column, std::int64_t cols) {
  const std::int64_t left = std::clamp<std::int64_t>(cols - column, 0, kPairLanes);
  return _mm512_maskz_loadu_ps(first_lanes(left), row + column);
}

}  // namespace

void multiply_pairs(const PairProduct& p) {
  constexpr std::int64_t wide = 4;
  constexpr std::int64_t narrow = 2;  // Narrow tiles skip more above the diagonal.
  const std::int64_t whole = p.scores ? std::min(p.n, p.seen + 1) : p.n;
  std::int64_t j = 0;
  for (; j + wide * kPairLanes <= whole; j += wide * kPairLanes) {
    pair_columns<wide>(p, j);
  }
  for (; j + narrow * kPairLanes <= p.n; j += narrow * kPairLanes) {
    pair_columns<narrow>(p, j);
  }
  for (; j < p.n; j += kPairLanes) {
    pair_columns<1>(p, j);
  }
}

void pack_pairs_along(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                      std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t step = 2 * kPairLanes;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* elements = from + row * from_row;
    Bf16Pair* pairs = to + row * to_row;
    std::int64_t i = 0;
    for (; i + step <= cols; i += step) {
      _mm512_storeu_si512(pairs + i / 2, pairs_along(elements + i));
    }
    if (i < cols) {
      _mm512_storeu_si512(pairs + i / 2, pairs_along(elements + i, cols - i));
    }
  }
}

void pack_pairs_across(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                       std::int64_t rows, std::int64_t cols, std::int64_t padded) {
  for (std::int64_t row = 0; row < rows; row += 2) {
    const float* before = from + row * from_row;
    for (std::int64_t column = 0; column < padded; column += kPairLanes) {
      const __m512 after =
          row + 1 < rows ? load_columns(before + from_row, column, cols) : _mm512_setzero_ps();
      _mm512_storeu_si512(to + row / 2 * to_row + column,
                          pairs_across(load_columns(before, column, cols), after));
    }
  }
}

void pack_pairs_transposed(const float* from, std::int64_t from_row, Bf16Pair* to,
                           std::int64_t to_row, std::int64_t rows, std::int64_t cols) {
  const std::int64_t pairs = divide_up(cols, std::int64_t{2});
  for (std::int64_t row = 0; row < rows; row += kPairLanes) {
    for (std::int64_t pair = 0; pair < pairs; pair += kPairLanes) {
      __m512i vectors[kPairLanes];
      load_pairs_across(from + row * from_row + 2 * pair, from_row, rows - row, cols - 2 * pair,
                        vectors);
      const std::int64_t count = std::min(kPairLanes, pairs - pair);
      for (std::int64_t i = 0; i < count; ++i) {
        _mm512_storeu_si512(to + (pair + i) * to_row + row, vectors[i]);
      }
    }
  }
}

void cached_scores(const Bf16Pair* queries, std::int64_t query_row, const float* keys,
                   const RingRows& of, std::int64_t head_dim, float* scores, std::int64_t score_row,
                   std::int64_t heads) {
  constexpr std::int64_t at_once = 8;
  for (std::int64_t key = 0; key < of.count;) {
    const std::int64_t slot = (of.slot + key) % of.capacity;
    const std::int64_t columns = std::min({kPairLanes, of.count - key, of.capacity - slot});
    const __mmask16 mask = first_lanes(columns);
    for (std::int64_t head = 0; head < heads; head += at_once) {
      const std::int64_t some = std::min(at_once, heads - head);
      __m512 sum[at_once];
      std::fill_n(sum, at_once, _mm512_setzero_ps());
      for (std::int64_t d = 0; d < head_dim; d += 2) {
        const float* row = keys + d * of.capacity + slot;
        const __m512 after =
            d + 1 < head_dim ? _mm512_maskz_loadu_ps(mask, row + of.capacity) : _mm512_setzero_ps();
        const __m512i right = pairs_across(_mm512_maskz_loadu_ps(mask, row), after);
        for (std::int64_t h = 0; h < some; ++h) {
          const Bf16Pair left = queries[(head + h) * query_row + d / 2];
          sum[h] = add_products(sum[h], _mm512_set1_epi32(static_cast<int>(left)), right);
        }
      }
      for (std::int64_t h = 0; h < some; ++h) {
        _mm512_mask_storeu_ps(scores + (head + h) * score_row + key, mask,
                              _mm512_add_ps(sum[h], _mm512_setzero_ps()));
      }
    }
    key += columns;
  }
}

void cached_outputs(const Bf16Pair* probabilities, std::int64_t row, const float* values,
                    const RingRows& of, std::int64_t value_dim, float* out, std::int64_t out_row,
                    std::int64_t heads) {
  constexpr std::int64_t at_once = 8;
  const std::int64_t pairs = divide_up(of.count, std::int64_t{2});
  for (std::int64_t column = 0; column < value_dim; column += kPairLanes) {
    const auto of_row = [&](std::int64_t i) {
      return i >= of.count ? _mm512_setzero_ps()
                           : load_columns(values + (of.slot + i) % of.capacity * value_dim, column,
                                          value_dim);
    };
    for (std::int64_t head = 0; head < heads; head += at_once) {
      const std::int64_t some = std::min(at_once, heads - head);
      __m512 sum[at_once];
      std::fill_n(sum, at_once, _mm512_setzero_ps());
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const __m512i right = pairs_across(of_row(2 * pair), of_row(2 * pair + 1));
        for (std::int64_t h = 0; h < some; ++h) {
          const Bf16Pair left = probabilities[(head + h) * row + pair];
          sum[h] = add_products(sum[h], _mm512_set1_epi32(static_cast<int>(left)), right);
        }
      }
      for (std::int64_t h = 0; h < some; ++h) {
        _mm512_storeu_ps(out + (head + h) * out_row + column,
                         _mm512_add_ps(sum[h], _mm512_setzero_ps()));
      }
    }
  }
}

}  // namespace train::kernels::cpu
TRAIN_AFTER_BF16
