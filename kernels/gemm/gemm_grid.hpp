#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu_support.hpp"

// How the CPU's products divide C among threads. Bits do not depend on it.
namespace train::kernels::cpu {

/// A rectangle of C.
struct Piece {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// What the pieces of a kind of product are made of, and take.
struct PieceCosts {
  std::int64_t whole_rows, whole_columns;  ///< Of a tile: pieces are multiples, but for the last.
  double rearranged;                       ///< An element of A or B, in multiply-adds.
  double started;                          ///< A piece, in multiply-adds.
  /// Rows of A that pass while B's columns stay, if there are more columns than `most_columns`:
  /// then B is rearranged again for the next ones.
  std::int64_t most_rows = INT64_MAX, most_columns = INT64_MAX;
};

/// Pieces of C, each for one thread.
struct Grid {
  std::int64_t rows = 0, columns = 0;  ///< Of a piece; the last ones may have fewer.
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

[[nodiscard]] Grid cheapest_grid(const MatmulParams& p, const PieceCosts& costs, int threads);

/// What needs no product: C empty, or a sum of no terms, which is 0 or leaves C as it is. False if
/// there is one to compute.
[[nodiscard]] bool is_done_without_terms(const MatmulParams& p);

}  // namespace train::kernels::cpu
