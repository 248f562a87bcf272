#include <type_traits>

#include "kernels/gemm/bf16_pairs-inl.hpp"
#include "kernels/gemm/gemm_depth.hpp"
#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/gemm_pieces.hpp"
#include "kernels/gemm/matmul.hpp"

TRAIN_BEFORE_BF16
namespace train::kernels::cpu {
namespace {

constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;  // Sums fill 24 of 32 registers.
/// Columns of B packed at a time; they stay in L2 while all rows of A pass.
constexpr std::int64_t kMostColumns = 144;
/// Rows of A rounded at a time, once for all columns.
constexpr std::int64_t kMostRows = 1024;

/// C (+)= kTileRows rows of op(A) times a panel of B, in registers over all pairs of k. A's pairs
/// are `step` apart within a row, rows `stride`.
template <int vectors, std::int64_t step>
[[gnu::noinline]] void multiply_tile(std::int64_t pairs, const Bf16Pair* a, std::int64_t stride,
                                     const Bf16Pair* b, float* c, std::int64_t ldc, bool add) {
  __m512 sum[kTileRows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = _mm512_setzero_ps();
      _mm_prefetch(reinterpret_cast<const char*>(c + r * ldc + v * kPairLanes), _MM_HINT_T0);
    }
  }
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < pairs; ++i) {
    __m512i right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      right[v] = _mm512_load_si512(b + v * kPairLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[step == 1 ? r * stride : r]));
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = add_products(sum[r][v], left, right[v]);
      }
    }
    a += step;
    b += vectors * kPairLanes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* to = c + r * ldc + v * kPairLanes;
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]) : sum[r][v]);
    }
  }
}

/// Calls body(column, columns, vectors) for the panels of `columns` columns.
template <class Body>
inline void each_panel(std::int64_t columns, const Body& body) {
  std::int64_t column = 0;
  while (column < columns) {
    const std::int64_t left = columns - column;
    const std::int64_t taken = panel_vectors(divide_up(left, kPairLanes), kTileVectors);
    const std::int64_t width = std::min(left, taken * kPairLanes);
    if (taken == 3) {
      body(column, width, std::integral_constant<int, 3>());
    } else if (taken == 2) {
      body(column, width, std::integral_constant<int, 2>());
    } else {
      body(column, width, std::integral_constant<int, 1>());
    }
    column += width;
  }
}

/// Start of the panel of a column of op(B), in pairs. A cache line stays empty after each column's
/// share: panels a multiple of 4096 bytes apart would map to the same cache sets.
constexpr std::int64_t panel_at(std::int64_t column, std::int64_t pairs) {
  return column * (pairs + 1);
}

/// Pairs between rows of A.
constexpr std::int64_t row_stride(std::int64_t pairs) {
  return divide_up(pairs, kPairLanes) * kPairLanes + kPairLanes;
}

/// Packs panels of B [n, k]: transposes 16 pairs of 16 columns.
void pack_columns(const Block& block, std::int64_t first, std::int64_t columns, Bf16Pair* to) {
  const std::int64_t ldb = block.p.ldb;
  each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
    constexpr std::int64_t row = decltype(vectors)::value * kPairLanes;
    Bf16Pair* panel = to + panel_at(column, block.pairs());
    for (std::int64_t i = 0; i < block.pairs(); i += kPairLanes) {
      const std::int64_t pairs = std::min(kPairLanes, block.pairs() - i);
      for (int v = 0; v < decltype(vectors)::value; ++v) {
        const std::int64_t j = v * kPairLanes;
        const float* from = block.b(first + column + j) + 2 * i;
        const bool last = i + kPairLanes >= block.pairs();
        prefetch_pairs(last ? from - 2 * i + row * ldb : from + 2 * kPairLanes, ldb);
        __m512i x[kPairLanes];
        load_pairs_across(from, ldb, width - j, block.depth - 2 * i, x);
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
          _mm512_store_si512(panel + (i + pair) * row + j, x[pair]);
        }
      }
    }
  });
}

/// Loads 16 pairs of two neighbouring rows of a matrix; zeros for missing columns or a missing
/// second row.
inline __m512i pairs_of_rows(const float* row, std::int64_t stride, bool two,
                             std::int64_t columns) {
  if (columns >= kPairLanes && two) {
    return pairs_across(_mm512_loadu_ps(row), _mm512_loadu_ps(row + stride));
  }
  const __mmask16 mask = first_lanes(std::min(columns, kPairLanes));
  return pairs_across(_mm512_maskz_loadu_ps(mask, row),
                      two ? _mm512_maskz_loadu_ps(mask, row + stride) : _mm512_setzero_ps());
}

constexpr std::int64_t kAhead = 16;  // Prefetch distance for rows, which hardware prefetchers do
                                     // not follow.

inline void prefetch_rows(const float* row, std::int64_t stride, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; j += kPairLanes) {
    _mm_prefetch(reinterpret_cast<const char*>(row + kAhead * stride + j), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(row + (kAhead + 1) * stride + j), _MM_HINT_T0);
  }
}

/// Packs all panels of B [k, n] together, which gives long memory streams.
void pack_rows(const Block& block, std::int64_t first, std::int64_t columns, Bf16Pair* to) {
  const std::int64_t ldb = block.p.ldb;
  for (std::int64_t i = 0; i < block.pairs(); ++i) {
    const float* from = block.b(first) + 2 * i * ldb;
    const bool two = 2 * i + 1 < block.depth;
    prefetch_rows(from, ldb, columns);
    each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
      constexpr std::int64_t row = decltype(vectors)::value * kPairLanes;
      Bf16Pair* panel = to + panel_at(column, block.pairs()) + i * row;
#pragma GCC unroll 4
      for (int v = 0; v < decltype(vectors)::value; ++v) {
        const std::int64_t j = v * kPairLanes;
        _mm512_store_si512(panel + j, pairs_of_rows(from + column + j, ldb, two, width - j));
      }
    });
  }
}

/// Rounds A [m, k] row by row, as stored. Rows up to a whole tile are zero.
void round_rows(const Block& block, Bf16Pair* to) {
  const std::int64_t stride = row_stride(block.pairs());
  const std::int64_t rows = block.piece.rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = block.a(row);
    Bf16Pair* out = to + row * stride;
    std::int64_t i = 0;
    for (; i + 2 * kPairLanes <= block.depth; i += 2 * kPairLanes) {
      _mm512_store_si512(out + i / 2, pairs_along(from + i));
    }
    if (i < block.depth) {
      _mm512_store_si512(out + i / 2, pairs_along(from + i, block.depth - i));
    }
  }
  std::fill_n(to + rows * stride, (divide_up(rows, kTileRows) * kTileRows - rows) * stride, 0U);
}

/// Packs A [k, m] in panels of kTileRows rows of op(A).
void pack_transposed_a(const Block& block, Bf16Pair* to) {
  const std::int64_t lda = block.p.lda;
  const std::int64_t rows = block.piece.rows;
  const std::int64_t to_panel = panel_at(kTileRows, block.pairs());
  constexpr std::int64_t together = 128;  // Rows of op(A) per pass: one memory stream for each k.
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t last = std::min(rows, first + together);
    Bf16Pair* panel = to + first / kTileRows * to_panel;
    for (std::int64_t i = 0; i < block.pairs(); ++i) {
      const float* from = block.a(first) + 2 * i * lda;
      const bool two = 2 * i + 1 < block.depth;
      prefetch_rows(from, lda, last - first);
      Bf16Pair* out = panel + i * kTileRows;
      for (std::int64_t j = 0; j < last - first; j += kPairLanes) {
        const __m512i x = pairs_of_rows(from + j, lda, two, last - first - j);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(x));
        out += to_panel;
        if (j + kTileRows < last - first) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_extracti64x4_epi64(x, 1));
          out += to_panel;
        }
      }
    }
  }
}

/// Computes one row of tiles with several panels of B.
template <std::int64_t step>
void multiply_row(const Block& block, std::int64_t row, const Bf16Pair* a, std::int64_t first,
                  std::int64_t columns, const Bf16Pair* panels) {
  const MatmulParams& p = block.p;
  const std::int64_t pairs = block.pairs();
  const std::int64_t stride = row_stride(pairs);
  const std::int64_t rows = std::min<std::int64_t>(kTileRows, block.piece.rows - row);
  each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
    constexpr std::int64_t whole = decltype(vectors)::value * kPairLanes;
    const Bf16Pair* panel = panels + panel_at(column, pairs);
    float* c = block.c(row, first + column);
    if (rows == kTileRows && width == whole) {
      multiply_tile<vectors, step>(pairs, a, stride, panel, c, p.ldc, block.add());
      return;
    }
    alignas(64) float tile[kTileRows * whole];
    multiply_tile<vectors, step>(pairs, a, stride, panel, tile, whole, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < width; ++j) {
        const float sum = tile[r * whole + j];
        c[r * p.ldc + j] = block.add() ? c[r * p.ldc + j] + sum : sum;
      }
    }
  });
}

void multiply_rows(const Block& block, std::int64_t column, std::int64_t columns,
                   const Bf16Pair* panels, const Bf16Pair* rows) {
  for (std::int64_t row = 0; row < block.piece.rows; row += kTileRows) {
    if (block.p.transpose_a) {
      multiply_row<kTileRows>(block, row, rows + panel_at(row, block.pairs()), column, columns,
                              panels);
    } else {
      multiply_row<1>(block, row, rows + row * row_stride(block.pairs()), column, columns, panels);
    }
  }
}

void multiply_piece(const MatmulParams& p, const Piece& piece) {
  thread_local Scratch scratch;
  const std::int64_t depth = bf16_depth(p.k);
  const std::int64_t most_columns = std::min(kMostColumns, piece.columns);
  const std::int64_t most_rows = std::min(kMostRows, piece.rows);
  const std::int64_t pairs = depth / 2;
  const std::int64_t size_b = panel_at(divide_up(most_columns, kPairLanes) * kPairLanes, pairs);
  const std::int64_t whole_rows = divide_up(most_rows, kTileRows) * kTileRows;
  auto* panels = scratch.get<Bf16Pair>(size_b + whole_rows * row_stride(pairs));
  Bf16Pair* rows = panels + size_b;
  for (std::int64_t first = 0; first < p.k; first += depth) {
    for (std::int64_t row = 0; row < piece.rows; row += most_rows) {
      const Block block{.p = p,
                        .piece = {.row = piece.row + row,
                                  .rows = std::min(most_rows, piece.rows - row),
                                  .column = piece.column,
                                  .columns = piece.columns},
                        .first = first,
                        .depth = std::min(depth, p.k - first)};
      p.transpose_a ? pack_transposed_a(block, rows) : round_rows(block, rows);
      for (std::int64_t column = 0; column < piece.columns; column += most_columns) {
        const std::int64_t columns = std::min(most_columns, piece.columns - column);
        if (row == 0 || columns < piece.columns) {  // Otherwise they are still packed.
          p.transpose_b ? pack_columns(block, column, columns, panels)
                        : pack_rows(block, column, columns, panels);
        }
        multiply_rows(block, column, columns, panels, rows);
      }
    }
  }
}

}  // namespace
}  // namespace train::kernels::cpu
TRAIN_AFTER_BF16

namespace train::kernels::cpu {
namespace {

constexpr PieceCosts kCosts{
    .whole_rows = kTileRows,
    .whole_columns = kTileVectors * kPairLanes,
    .rearranged = 20.0,
    .started = 40000.0,
    .most_rows = kMostRows,
    .most_columns = kMostColumns,
};

Grid divide(const MatmulParams& p, int threads) { return cheapest_grid(p, kCosts, threads); }

void multiply(const ProductPiece& one, const ProductPiece* /*next*/) {
  if (has_few_rows(one.product)) {
    matmul_bf16_few_rows_piece(one.product, one.piece);
  } else {
    multiply_piece(one.product, one.piece);
  }
}

}  // namespace

const GemmPieces& bf16_gemm_pieces() {
  static constexpr GemmPieces pieces{.divide = divide, .multiply = multiply};
  return pieces;
}

bool has_bf16_products() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}

void matmul_bf16(const MatmulParams& p, int threads) {
  if (is_done_without_terms(p)) {
    return;
  }
  if (has_few_rows(p)) {
    matmul_bf16_few_rows(p, threads);
    return;
  }
  const Grid grid = cheapest_grid(p, kCosts, threads);
  parallel_shares(threads, grid.count(),
                  [&](std::int64_t i, int) { multiply_piece(p, grid.piece(p, i)); });
}

}  // namespace train::kernels::cpu
