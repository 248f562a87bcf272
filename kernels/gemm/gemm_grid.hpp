#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/matmul.hpp"

// Division of C among threads in the CPU's products. Bits do not depend on it.
namespace train::kernels::cpu {

/// A rectangle of C.
struct Piece {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Rectangle of C and one block of the inner dimension.
struct Block {
  const MatmulParams& p;
  Piece piece;
  std::int64_t first, depth;

  [[nodiscard]] bool add() const { return p.accumulate || first > 0; }
  /// Pairs of bf16 in `depth`.
  [[nodiscard]] std::int64_t pairs() const { return divide_up(depth, 2); }
  /// Address in op(A) or op(B) of row or column `at` of the rectangle.
  [[nodiscard]] const float* a(std::int64_t at) const {
    const auto* a = static_cast<const float*>(p.a);
    const std::int64_t row = piece.row + at;
    return p.transpose_a ? a + first * p.lda + row : a + row * p.lda + first;
  }
  [[nodiscard]] const float* b(std::int64_t at) const {
    const auto* b = static_cast<const float*>(p.b);
    const std::int64_t column = piece.column + at;
    return p.transpose_b ? b + column * p.ldb + first : b + first * p.ldb + column;
  }
  [[nodiscard]] float* c(std::int64_t row, std::int64_t column) const {
    return static_cast<float*>(p.c) + (piece.row + row) * p.ldc + piece.column + column;
  }
};

/// Granularity and cost of the pieces of one kind of product.
struct PieceCosts {
  std::int64_t whole_rows, whole_columns;  ///< Tile size; pieces are multiples of it, except the
                                           ///< last.
  double rearranged;  ///< Cost of packing one element of A or B, in multiply-adds.
  double started;     ///< Cost of starting a piece, in multiply-adds.
  /// Rows of A per pass over B's columns if C has more columns than `most_columns`; B is packed
  /// again for the next rows.
  std::int64_t most_rows = INT64_MAX, most_columns = INT64_MAX;
};

/// Pieces of C, each for one thread.
struct Grid {
  std::int64_t rows = 0, columns = 0;  ///< Size of a piece; the last ones may be smaller.
  std::int64_t down = 1, across = 1;
  [[nodiscard]] std::int64_t count() const { return down * across; }
  [[nodiscard]] Piece piece(const MatmulParams& p, std::int64_t i) const {
    const std::int64_t row = i / across * rows;
    const std::int64_t column = i % across * columns;
    return {.row = row,
            .rows = std::min(rows, p.m - row),
            .column = column,
            .columns = std::min(columns, p.n - column)};
  }
};

/// Width of the next panel of columns, in vectors, where `left` vectors of columns are left:
/// `most`; at the end twice two instead of three and one, which would not saturate the FMA units.
[[nodiscard]] constexpr std::int64_t panel_vectors(std::int64_t left, std::int64_t most) {
  return left == 4 ? 2 : std::min(left, most);
}

[[nodiscard]] Grid cheapest_grid(const MatmulParams& p, const PieceCosts& costs, int threads);

/// Handles products without terms: C empty, or k = 0, which sets C to 0 or leaves it. Returns false
/// if there is a product to compute.
[[nodiscard]] bool is_done_without_terms(const MatmulParams& p);

}  // namespace train::kernels::cpu
