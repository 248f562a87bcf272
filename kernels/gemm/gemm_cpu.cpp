#include <unistd.h>

#include <cmath>
#include <type_traits>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_depth.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/gemm/gemm_tile-inl.hpp"

#ifndef TRAIN_KERNELS_GEMM_CPU_ONCE
#define TRAIN_KERNELS_GEMM_CPU_ONCE
namespace train::kernels::cpu {
namespace {

/// A rectangle of C.
struct Piece {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Columns of B that are rearranged at a time: they stay in the second-level cache, with room for
/// what passes, while all rows of A do.
std::int64_t columns_at_once(std::int64_t depth) {
  static const std::int64_t cache_bytes = std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 262144L);
  constexpr std::int64_t unit = 48;
  const std::int64_t column_bytes = depth * static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(cache_bytes / 8 * 3 / column_bytes / unit * unit, 2 * unit,
                                  16 * unit);
}

/// Rows of a transposed A that are rearranged at a time. Where B's columns pass all at once, they
/// stay in the cache beside them; otherwise B is rearranged anew for each, so there are many.
std::int64_t rearranged_rows(std::int64_t columns, std::int64_t depth) {
  return columns <= columns_at_once(depth) ? 192 : 1024;
}

}  // namespace
}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// A rectangle of C, and one block of the inner dimension.
struct Block {
  const MatmulParams& p;
  Piece piece;
  std::int64_t first, depth;

  [[nodiscard]] bool add() const { return p.accumulate || first > 0; }
  /// Of op(A) and op(B), from row or column `at` of the rectangle.
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

/// body(column, columns, vectors) for the panels of `columns` columns: three vectors wide, and at
/// the end twice two rather than three and one, which would not keep the multipliers busy.
template <class Body>
HWY_INLINE void each_panel(std::int64_t columns, const Body& body) {
  static_assert(kTileVectors == 3);
  std::int64_t column = 0;
  while (column < columns) {
    const std::int64_t left = columns - column;
    const std::int64_t vectors = divide_up(left, kLanes);
    const std::int64_t taken = vectors == 4 ? 2 : std::min<std::int64_t>(vectors, kTileVectors);
    const std::int64_t width = std::min(left, taken * kLanes);
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

/// Where the panel of a row of op(A) or a column of op(B) starts. One row of it stays empty: panels
/// a multiple of 4096 bytes apart would share lines of the caches.
constexpr std::int64_t panel_at(std::int64_t index, std::int64_t depth) {
  return index * (depth + 1);
}

void pack_b(const Block& block, std::int64_t first, std::int64_t columns, float* to) {
  if (block.p.transpose_b) {
    each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
      pack_across(Floats(), block.b(first + column), block.p.ldb, block.depth, width,
                  to + panel_at(column, block.depth), vectors * kLanes);
    });
    return;
  }
  constexpr std::int64_t line = 16;   // Elements.
  constexpr std::int64_t ahead = 24;  // Rows: no other part of the machine guesses their distance.
  for (std::int64_t i = 0; i < block.depth; ++i) {  // All panels together: long streams of memory.
    const float* from = block.b(first) + i * block.p.ldb;
    for (std::int64_t j = 0; j < columns; j += line) {
      hwy::Prefetch(from + ahead * block.p.ldb + j);
    }
    each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
      pack_row<vectors>(from + column, width,
                        to + panel_at(column, block.depth) + i * vectors * kLanes);
    });
  }
}

/// One row of tiles: A's rows are a panel if `packed`, else they are taken as they lie.
template <bool packed>
void multiply_row(const Block& block, std::int64_t row, const float* a, std::int64_t first,
                  std::int64_t columns, const float* panels) {
  const MatmulParams& p = block.p;
  const std::int64_t rows = std::min<std::int64_t>(kTileRows, block.piece.rows - row);
  each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
    constexpr std::int64_t whole = decltype(vectors)::value * kLanes;
    const float* panel = panels + panel_at(column, block.depth);
    float* c = block.c(row, first + column);
    if (rows == kTileRows && width == whole) {
      multiply_tile<vectors, packed>(block.depth, a, p.lda, panel, c, p.ldc, block.add());
      return;
    }
    HWY_ALIGN float tile[kTileRows * whole];
    multiply_tile<vectors, packed>(block.depth, a, p.lda, panel, tile, whole, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < width; ++j) {
        const float sum = tile[r * whole + j];
        c[r * p.ldc + j] = block.add() ? c[r * p.ldc + j] + sum : sum;
      }
    }
  });
}

/// All rows of tiles with some panels of B. rows: scratch for rows of A that have to be rearranged.
void multiply_rows(const Block& block, std::int64_t column, std::int64_t columns,
                   const float* panels, const float* rows) {
  const MatmulParams& p = block.p;
  const std::int64_t as_they_lie = p.transpose_a ? 0 : block.piece.rows / kTileRows * kTileRows;
  for (std::int64_t row = 0; row < as_they_lie; row += kTileRows) {
    multiply_row<false>(block, row, block.a(row), column, columns, panels);
  }
  for (std::int64_t row = as_they_lie; row < block.piece.rows; row += kTileRows) {
    multiply_row<true>(block, row, rows + panel_at(row - as_they_lie, block.depth), column, columns,
                       panels);
  }
}

void pack_a(const Block& block, float* rows) {
  const MatmulParams& p = block.p;
  const std::int64_t whole = block.piece.rows / kTileRows * kTileRows;
  if (p.transpose_a) {
    pack_transposed_a(block.a(0), p.lda, block.piece.rows, block.depth, rows,
                      panel_at(kTileRows, block.depth));
  } else if (whole < block.piece.rows) {
    pack_across(hn::CappedTag<float, kTileRows>(), block.a(whole), p.lda, block.depth,
                block.piece.rows - whole, rows, kTileRows);
  }
}

void multiply_piece(const MatmulParams& p, const Piece& piece) {
  thread_local Scratch scratch;
  const std::int64_t depth = gemm_depth(p.k);
  const std::int64_t most_columns = std::min(columns_at_once(depth), piece.columns);
  const std::int64_t most_rows =
      p.transpose_a ? std::min(rearranged_rows(piece.columns, depth), piece.rows) : piece.rows;
  const std::int64_t size_b = panel_at(divide_up(most_columns, kLanes) * kLanes, depth);
  const std::int64_t size_a =
      panel_at(p.transpose_a ? divide_up(most_rows, kTileRows) * kTileRows : kTileRows, depth);
  auto* panels = scratch.get<float>(size_b + size_a);
  float* rows = panels + size_b;
  for (std::int64_t first = 0; first < p.k; first += depth) {
    for (std::int64_t row = 0; row < piece.rows; row += most_rows) {
      const Block block{.p = p,
                        .piece = {.row = piece.row + row,
                                  .rows = std::min(most_rows, piece.rows - row),
                                  .column = piece.column,
                                  .columns = piece.columns},
                        .first = first,
                        .depth = std::min(depth, p.k - first)};
      pack_a(block, rows);
      for (std::int64_t column = 0; column < piece.columns; column += most_columns) {
        const std::int64_t columns = std::min(most_columns, piece.columns - column);
        if (row == 0 || columns < piece.columns) {  // else they are still there
          pack_b(block, column, columns, panels);
        }
        multiply_rows(block, column, columns, panels, rows);
      }
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {
namespace {

HWY_EXPORT(multiply_piece);

/// Pieces of C, each for one thread: whole tiles, except at the ends.
struct Grid {
  std::int64_t rows = 0, columns = 0;  // Of a piece; the last ones may have fewer.
  std::int64_t down = 1, across = 1;
  [[nodiscard]] std::int64_t count() const { return down * across; }
};

Grid grid_of(const MatmulParams& p, std::int64_t down, std::int64_t across) {
  constexpr std::int64_t whole_rows = 8;  // Of every instruction set's tile.
  constexpr std::int64_t whole_columns = 48;
  const std::int64_t rows = divide_up(divide_up(p.m, down), whole_rows) * whole_rows;
  const std::int64_t columns = divide_up(divide_up(p.n, across), whole_columns) * whole_columns;
  return {.rows = rows,
          .columns = columns,
          .down = divide_up(p.m, rows),
          .across = divide_up(p.n, columns)};
}

/// What a product takes with this grid, in multiply-adds of one thread. Each piece reads its rows
/// of A once for some columns, rearranges them if A lies transposed, and rearranges its columns of
/// B.
double cost(const MatmulParams& p, const Grid& grid, int threads) {
  // Measured, of an element: 0.1 ns, 0.05 ns.
  constexpr double rearranged = 12.0;
  constexpr double read = 6.0;
  constexpr double columns_of_pass = 240.0;
  constexpr double started = 20000.0;  // A piece.
  constexpr double idle = 0.15;        // Of a piece, at the end, on average.
  const auto rows = static_cast<double>(std::min(grid.rows, p.m));
  const auto columns = static_cast<double>(std::min(grid.columns, p.n));
  const double of_a =
      rows * (read * std::ceil(columns / columns_of_pass) + (p.transpose_a ? rearranged : 0.0));
  const double of_b = columns * rearranged;
  const double piece = static_cast<double>(p.k) * (rows * columns + of_a + of_b) + started;
  const auto rounds = static_cast<double>(divide_up(grid.count(), threads));
  return piece * (rounds + (threads > 1 ? idle : 0.0));
}

Grid cheapest_grid(const MatmulParams& p, int threads) {
  const std::int64_t most = std::int64_t{8} * threads;
  Grid best = grid_of(p, 1, 1);
  double least = cost(p, best, threads);
  for (std::int64_t down = 1; threads > 1 && down <= most; ++down) {
    for (std::int64_t across = 1; down * across <= most; ++across) {
      const Grid grid = grid_of(p, down, across);
      if (grid.down != down || grid.across != across) {
        continue;
      }
      if (const double taken = cost(p, grid, threads); taken < least) {
        best = grid;
        least = taken;
      }
    }
  }
  return best;
}

}  // namespace

void matmul(const MatmulParams& p, int threads) {
  if (p.m == 0 || p.n == 0 || (p.k == 0 && p.accumulate)) {
    return;
  }
  if (p.k == 0) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      std::fill_n(static_cast<float*>(p.c) + row * p.ldc, p.n, 0.0F);
    }
    return;
  }
  if (has_few_rows(p)) {
    matmul_few_rows(p, threads);
    return;
  }
  const auto multiply = HWY_DYNAMIC_DISPATCH(multiply_piece);
  const Grid grid = cheapest_grid(p, threads);
  parallel_for(threads, grid.count(), [&](std::int64_t i, int) {
    const std::int64_t row = i / grid.across * grid.rows;
    const std::int64_t column = i % grid.across * grid.columns;
    multiply(p, {.row = row,
                 .rows = std::min(grid.rows, p.m - row),
                 .column = column,
                 .columns = std::min(grid.columns, p.n - column)});
  });
}

}  // namespace train::kernels::cpu
#endif
