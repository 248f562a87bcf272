#include <type_traits>

#include "kernels/gemm/bf16_pairs-inl.hpp"
#include "kernels/gemm/gemm_depth.hpp"
#include "kernels/gemm/matmul.hpp"

TRAIN_BEFORE_BF16
namespace train::kernels::cpu {
namespace {

/// Up to 16 columns of C and one block of the inner dimension. a: the block's pairs of op(A), rows
/// `stride` apart.
struct Columns {
  const MatmulParams& p;
  const Bf16Pair* a;
  std::int64_t stride;
  std::int64_t column, columns;
  std::int64_t first, depth;

  [[nodiscard]] bool add() const { return p.accumulate || first > 0; }
  [[nodiscard]] const float* b(std::int64_t i) const {
    const auto* b = static_cast<const float*>(p.b);
    return p.transpose_b ? b + column * p.ldb + first + i : b + (first + i) * p.ldb + column;
  }
};

/// Loads 16 pairs of B's columns from element i of the block on, one vector per column, from rows
/// of B [k, n].
inline void load_rows(const Columns& c, std::int64_t i, __m512i* to) {
  constexpr std::int64_t ahead = 32;  // Prefetch distance for rows of B, which hardware prefetchers
                                      // do not follow.
  const __mmask16 mask = first_lanes(c.columns);
  const std::int64_t left = std::min(c.depth - i, 2 * kPairLanes);
  for (std::int64_t pair = 0; 2 * pair < left; ++pair) {
    const float* from = c.b(i + 2 * pair);
    _mm_prefetch(reinterpret_cast<const char*>(from + ahead * c.p.ldb), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + (ahead + 1) * c.p.ldb), _MM_HINT_T0);
    const __m512 after =
        2 * pair + 1 < left ? _mm512_maskz_loadu_ps(mask, from + c.p.ldb) : _mm512_setzero_ps();
    to[pair] = pairs_across(_mm512_maskz_loadu_ps(mask, from), after);
  }
}

template <int rows>
void multiply_columns(const Columns& c) {
  __m512 sum[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    sum[r] = _mm512_setzero_ps();
  }
  for (std::int64_t i = 0; i < c.depth; i += 2 * kPairLanes) {
    __m512i right[kPairLanes];
    if (c.p.transpose_b) {
      const bool last = i + 2 * kPairLanes >= c.depth;
      prefetch_pairs(last ? c.b(0) + kPairLanes * c.p.ldb : c.b(i + 2 * kPairLanes), c.p.ldb);
      load_pairs_across(c.b(i), c.p.ldb, c.columns, c.depth - i, right);
    } else {
      load_rows(c, i, right);
    }
    const std::int64_t pairs = std::min(divide_up(c.depth - i, 2), kPairLanes);
    const Bf16Pair* left = c.a + i / 2;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto bits = static_cast<int>(left[r * c.stride + pair]);
        sum[r] = add_products(sum[r], _mm512_set1_epi32(bits), right[pair]);
      }
    }
  }
  const __mmask16 mask = first_lanes(c.columns);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    float* to = static_cast<float*>(c.p.c) + r * c.p.ldc + c.column;
    const __m512 before = c.add() ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(to, mask, c.add() ? _mm512_add_ps(before, sum[r]) : sum[r]);
  }
}

template <int rows = 8>
void multiply(const Columns& c) {
  if constexpr (rows > 1) {
    if (c.p.m < rows) {
      multiply<rows - 1>(c);
      return;
    }
  }
  multiply_columns<rows>(c);
}

/// Rounds A's rows to pairs, filled up to whole vectors.
void round_rows(const MatmulParams& p, std::int64_t stride, Bf16Pair* to) {
  for (std::int64_t row = 0; row < p.m; ++row) {
    const float* from = static_cast<const float*>(p.a) + row * p.lda;
    for (std::int64_t i = 0; i < p.k; i += 2 * kPairLanes) {
      const std::int64_t left = std::min(p.k - i, 2 * kPairLanes);
      _mm512_store_si512(to + row * stride + i / 2, pairs_along(from + i, left));
    }
  }
}

}  // namespace
}  // namespace train::kernels::cpu
TRAIN_AFTER_BF16

namespace train::kernels::cpu {

namespace {

/// Pairs between rows of A.
std::int64_t row_stride(const MatmulParams& p) {
  return divide_up(p.k, 2 * kPairLanes) * kPairLanes;
}

/// a: op(A) as rounded.
void multiply_range(const MatmulParams& p, const Bf16Pair* a, std::int64_t begin,
                    std::int64_t end) {
  const std::int64_t depth = bf16_depth(p.k);  // Pairs are rounded up to whole vectors.
  for (std::int64_t first = 0; first < p.k; first += depth) {
    for (std::int64_t column = begin; column < end; column += kPairLanes) {
      multiply({.p = p,
                .a = a + first / 2,
                .stride = row_stride(p),
                .column = column,
                .columns = std::min(kPairLanes, end - column),
                .first = first,
                .depth = std::min(depth, p.k - first)});
    }
  }
}

Bf16Pair* rounded_rows(const MatmulParams& p) {
  thread_local Scratch scratch;
  auto* a = scratch.get<Bf16Pair>(p.m * row_stride(p));
  round_rows(p, row_stride(p), a);
  return a;
}

}  // namespace

void matmul_bf16_few_rows_piece(const MatmulParams& p, const Piece& piece) {
  multiply_range(p, rounded_rows(p), piece.column, piece.column + piece.columns);
}

void matmul_bf16_few_rows(const MatmulParams& p, int threads) {
  const Bf16Pair* a = rounded_rows(p);
  const std::int64_t pieces = std::int64_t{8} * threads;
  const std::int64_t least = kElementBlock / std::max<std::int64_t>(p.k, 1);  // As in fp32.
  const std::int64_t columns =
      divide_up(std::max(divide_up(p.n, pieces), least), kPairLanes) * kPairLanes;
  parallel_blocks(threads, p.n, columns,
                  [&](std::int64_t begin, std::int64_t end) { multiply_range(p, a, begin, end); });
}

}  // namespace train::kernels::cpu
