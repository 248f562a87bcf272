#include <unistd.h>

#include <type_traits>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_depth.hpp"
#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/gemm_pieces.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/gemm/transposed_gemm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/gemm/gemm_tile-inl.hpp"

#ifndef TRAIN_KERNELS_GEMM_CPU_ONCE
#define TRAIN_KERNELS_GEMM_CPU_ONCE
namespace train::kernels::cpu {
namespace {

/// Columns of B packed at a time, out of `columns`: they stay in L2, with room for passing data,
/// while all rows of A pass. Divided equally: a small remainder would read A again for little work.
std::int64_t columns_at_once(std::int64_t columns, std::int64_t depth) {
  static const std::int64_t cache_bytes = std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 262144L);
  constexpr std::int64_t unit = 48;
  const std::int64_t column_bytes = depth * static_cast<std::int64_t>(sizeof(float));
  const auto most = std::clamp<std::int64_t>(cache_bytes / 8 * 3 / column_bytes / unit * unit,
                                             2 * unit, 16 * unit);
  return divide_up(divide_up(columns, divide_up(columns, most)), unit) * unit;
}

/// Rows of tiles that pass a panel of B before the next panel. Several if A has few rows that come
/// from memory, so that fewer of them are requested at once; otherwise one.
constexpr std::int64_t tiles_at_once(std::int64_t rows, std::int64_t k) {
  constexpr std::int64_t few = 256;
  constexpr std::int64_t cached_bytes = 16'777'216;
  const bool from_memory = rows * k * static_cast<std::int64_t>(sizeof(float)) > cached_bytes;
  return rows <= few && from_memory ? 8 : 1;
}

}  // namespace
}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Packs a panel of B, unless the first tile packs it on the way.
template <int vectors>
void pack_b(const Block& block, std::int64_t column, std::int64_t width, float* to) {
  constexpr std::int64_t whole = vectors * kLanes;
  const float* from = block.b(column);
  if (block.p.transpose_b) {
    pack_across(Floats(), from, block.p.ldb, block.depth, width, to, whole);
    return;
  }
  for (std::int64_t i = 0; i < block.depth; ++i) {
    pack_row<vectors>(from + i * block.p.ldb, width, to + i * whole);
  }
}

/// Packs `rows` rows of op(A) from `row` on, filled up with zeros to `width`.
void pack_left_rows(const Block& block, std::int64_t row, std::int64_t rows, std::int64_t width,
                    float* to) {
  const MatmulParams& p = block.p;
  const float* from = block.a(row);
  if (!p.transpose_a) {
    pack_across(hn::CappedTag<float, kFewTileRows>(), from, p.lda, block.depth, rows, to, width);
    return;
  }
  for (std::int64_t i = 0; i < block.depth; ++i) {
    std::copy_n(from + i * p.lda, rows, to + i * width);
    std::fill_n(to + i * width + rows, width - rows, 0.0F);
  }
}

/// Lines to prefetch: the columns from `column` on; after the last ones, the first columns of the
/// next block of the inner dimension; after that those of the next piece.
Ahead columns_ahead(const Block& block, std::int64_t column, std::int64_t most,
                    const ProductPiece* next) {
  if (column >= block.piece.columns) {
    const std::int64_t first = block.first + block.depth;
    const std::int64_t depth = std::min(block.depth, block.p.k - first);
    if (depth > 0) {
      return columns_ahead({block.p, block.piece, first, depth}, 0, most, nullptr);
    }
    if (next == nullptr || next->product.k == 0) {
      return {};
    }
    const Block after{next->product, next->piece, 0, gemm_depth(next->product.k)};
    return columns_ahead(after, 0, columns_at_once(next->piece.columns, after.depth), nullptr);
  }
  const std::int64_t columns = std::min(most, block.piece.columns - column);
  const bool across = block.p.transpose_b;
  return {.from = block.b(column),
          .rows = across ? columns : block.depth,
          .row_elements = across ? block.depth : columns,
          .stride = block.p.ldb};
}

/// The first rows of the next piece's op(A), after the last columns of this one; as many as leave
/// room in L2.
Ahead rows_ahead(const Block& block, std::int64_t column, const ProductPiece* next) {
  const bool last = column >= block.piece.columns && block.first + block.depth == block.p.k;
  if (!last || next == nullptr || next->product.k == 0) {
    return {};
  }
  constexpr std::int64_t most = 131'072;
  const MatmulParams& p = next->product;
  const Block after{p, next->piece, 0, p.k};
  const bool across = p.transpose_a;
  const std::int64_t elements = across ? next->piece.rows : p.k;
  return {.from = after.a(0),
          .rows = std::min(across ? p.k : next->piece.rows, most / elements),
          .row_elements = elements,
          .stride = p.lda};
}

/// Computes one tile, by the places of its operands.
template <int vectors>
HWY_INLINE void multiply_whole_tile(const Tile& tile, Left left, Right right) {
  const auto with_right = [&](auto from) {
    constexpr Right of_b = decltype(from)::value;
    if (left == Left::panel) {
      multiply_tile<kTileRows, vectors, Left::panel, of_b>(tile);
    } else if (left == Left::rows) {
      multiply_tile<kTileRows, vectors, Left::rows, of_b>(tile);
    } else {
      multiply_tile<kTileRows, vectors, Left::columns, of_b>(tile);
    }
  };
  if (right == Right::panel) {
    with_right(std::integral_constant<Right, Right::panel>());
  } else {
    with_right(std::integral_constant<Right, Right::rows>());
  }
}

/// Computes `tiles` rows of full-height tiles from `row` on, for each panel of B in turn. The
/// block's first rows pack the panels. a_panels: scratch, used if A is transposed.
void multiply_rows(const Block& block, std::int64_t row, std::int64_t tiles,
                   std::int64_t first_column, std::int64_t columns, float* panels, float* a_panels,
                   LinesAhead& ahead) {
  const MatmulParams& p = block.p;
  each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
    constexpr int count = decltype(vectors)::value;
    constexpr std::int64_t whole = count * kLanes;
    float* panel = panels + panel_at(column, block.depth);
    bool made = row == 0 && !p.transpose_b && width == whole;
    if (row == 0 && !made) {
      pack_b<count>(block, first_column + column, width, panel);
    }
    Tile tile{.k = block.depth,
              .a = nullptr,
              .a_stride = p.lda,
              .b = nullptr,
              .b_stride = p.ldb,
              .c = nullptr,
              .ldc = p.ldc,
              .rows = kTileRows,
              .columns = width,
              .add = block.add(),
              .a_panel = nullptr,
              .b_panel = panel,
              .ahead = &ahead};
    const Left left = !p.transpose_a ? Left::rows : column == 0 ? Left::columns : Left::panel;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t at = row + t * kTileRows;
      tile.a_panel = a_panels + panel_at(t * kTileRows, block.depth);
      tile.a = left == Left::panel ? tile.a_panel : block.a(at);
      tile.b = made ? block.b(first_column + column) : panel;
      tile.c = block.c(at, first_column + column);
      multiply_whole_tile<count>(tile, left, made ? Right::rows : Right::panel);
      made = false;
    }
  });
}

/// Computes the tiles of the remaining rows. a_panel: scratch.
void multiply_left_rows(const Block& block, std::int64_t row, std::int64_t first_column,
                        std::int64_t columns, float* panels, float* a_panel, LinesAhead& ahead) {
  const std::int64_t rows = block.piece.rows - row;
  const bool few = rows <= kFewTileRows;
  pack_left_rows(block, row, rows, few ? kFewTileRows : kTileRows, a_panel);
  each_panel(columns, [&](std::int64_t column, std::int64_t width, auto vectors) {
    constexpr int count = decltype(vectors)::value;
    float* panel = panels + panel_at(column, block.depth);
    if (row == 0) {
      pack_b<count>(block, first_column + column, width, panel);
    }
    const Tile tile{.k = block.depth,
                    .a = a_panel,
                    .a_stride = 0,
                    .b = panel,
                    .b_stride = 0,
                    .c = block.c(row, first_column + column),
                    .ldc = block.p.ldc,
                    .rows = rows,
                    .columns = width,
                    .add = block.add(),
                    .a_panel = nullptr,
                    .b_panel = nullptr,
                    .ahead = &ahead};
    if (few) {
      multiply_tile<kFewTileRows, count, Left::panel, Right::panel>(tile);
    } else {
      multiply_tile<kTileRows, count, Left::panel, Right::panel>(tile);
    }
  });
}

void multiply_piece(const MatmulParams& p, const Piece& piece, const ProductPiece* next) {
  thread_local Scratch scratch;
  const std::int64_t depth = gemm_depth(p.k);
  const std::int64_t most_columns = columns_at_once(piece.columns, depth);
  const std::int64_t size_b = panel_at(divide_up(most_columns, kLanes) * kLanes, depth);
  const std::int64_t tiles = piece.rows / kTileRows;
  const std::int64_t most_tiles = tiles_at_once(piece.rows, p.k);
  auto* panels = scratch.get<float>(size_b + panel_at(most_tiles * kTileRows, depth));
  float* a_panels = panels + size_b;
  for (std::int64_t first = 0; first < p.k; first += depth) {
    const Block block{
        .p = p, .piece = piece, .first = first, .depth = std::min(depth, p.k - first)};
    for (std::int64_t column = 0; column < piece.columns; column += most_columns) {
      const std::int64_t columns = std::min(most_columns, piece.columns - column);
      const std::int64_t panels_across = divide_up(columns, kTileVectors * kLanes);
      LinesAhead ahead(columns_ahead(block, column + columns, most_columns, next),
                       tiles * panels_across * divide_up(block.depth, kSteps),
                       rows_ahead(block, column + columns, next));
      for (std::int64_t t = 0; t < tiles; t += most_tiles) {
        multiply_rows(block, t * kTileRows, std::min(most_tiles, tiles - t), column, columns,
                      panels, a_panels, ahead);
      }
      if (tiles * kTileRows < piece.rows) {
        multiply_left_rows(block, tiles * kTileRows, column, columns, panels, a_panels, ahead);
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

constexpr PieceCosts kCosts{
    .whole_rows = 8,  // Multiple of every instruction set's tile height.
    .whole_columns = 48,
    .rearranged = 24.0,  // Includes the memory access; measured, 6 is up to 6 % slower.
    .started = 20000.0,
};

Grid divide(const MatmulParams& p, int threads) { return cheapest_grid(p, kCosts, threads); }

void multiply(const ProductPiece& one, const ProductPiece* next) {
  if (has_few_rows(one.product)) {
    matmul_few_rows_piece(one.product, one.piece);
  } else if (is_transposed(one.product)) {
    matmul_transposed_piece(one, next);
  } else {
    HWY_DYNAMIC_DISPATCH(multiply_piece)(one.product, one.piece, next);
  }
}

}  // namespace

const GemmPieces& gemm_pieces() {
  static constexpr GemmPieces pieces{.divide = divide, .multiply = multiply};
  return pieces;
}

void matmul(const MatmulParams& p, int threads) {
  if (is_done_without_terms(p)) {
    return;
  }
  if (has_few_rows(p)) {
    matmul_few_rows(p, threads);
    return;
  }
  const Grid grid = cheapest_grid(p, kCosts, threads);
  parallel_shares(threads, grid.count(), [&](std::int64_t i, int) {
    const ProductPiece after{.product = p, .piece = grid.piece(p, i + 1)};
    multiply({.product = p, .piece = grid.piece(p, i)},
             is_transposed(p) && i + 1 < grid.count() ? &after : nullptr);
  });
}

}  // namespace train::kernels::cpu
#endif
