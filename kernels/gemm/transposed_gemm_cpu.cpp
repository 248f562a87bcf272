#include "kernels/gemm/transposed_gemm.hpp"

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_depth.hpp"
#include "kernels/gemm/gemm_grid.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/transposed_gemm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/gemm/gemm_tile-inl.hpp"

#ifndef TRAIN_KERNELS_TRANSPOSED_GEMM_ONCE
#define TRAIN_KERNELS_TRANSPOSED_GEMM_ONCE
namespace train::kernels::cpu {

/// Rows of B that are multiplied before their sums are stored: whole tiles and whole vectors of
/// every instruction set, few enough that the sums stay in L1.
inline constexpr std::int64_t kRowsOfB = 48;

/// The rows of B from column `column` of C on, one block of the inner dimension of them.
[[nodiscard]] inline Ahead rows_of_b(const MatmulParams& p, std::int64_t column, std::int64_t rows,
                                     std::int64_t first) {
  return {.from = static_cast<const float*>(p.b) + column * p.ldb + first,
          .rows = std::min(rows, kRowsOfB),
          .row_elements = std::min(gemm_depth(p.k), p.k - first),
          .stride = p.ldb};
}

/// Rows of B to prefetch: the next block of the inner dimension; after the last one, the next rows;
/// after these, the first ones of the next piece.
[[nodiscard]] inline Ahead rows_after(const Block& block, std::int64_t column,
                                      const ProductPiece* next) {
  const std::int64_t end = block.piece.column + block.piece.columns;
  if (const std::int64_t first = block.first + block.depth; first < block.p.k) {
    return rows_of_b(block.p, column, end - column, first);
  }
  if (column + kRowsOfB < end) {
    return rows_of_b(block.p, column + kRowsOfB, end - column - kRowsOfB, 0);
  }
  if (next == nullptr || next->product.k == 0 || !next->product.transpose_b) {
    return {};
  }
  return rows_of_b(next->product, next->piece.column, next->piece.columns, 0);
}

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Packs a block of the inner dimension of A's rows as panels of the right operand, A^T.
void pack_rows_of_a(const Block& block, float* panels) {
  each_panel(block.piece.rows, [&](std::int64_t row, std::int64_t rows, auto vectors) {
    pack_across(Floats(), block.a(row), block.p.lda, block.depth, rows,
                panels + panel_at(row, block.depth), decltype(vectors)::value * kLanes);
  });
}

/// Computes sums (+)= `rows` rows of B from `column` on times A^T, rows of `width` elements.
void multiply_rows_of_b(const Block& block, std::int64_t column, std::int64_t rows,
                        const float* panels, float* sums, std::int64_t width, float* left_panel,
                        LinesAhead& ahead) {
  const MatmulParams& p = block.p;
  const float* b = static_cast<const float*>(p.b) + column * p.ldb + block.first;
  const std::int64_t whole = rows / kTileRows * kTileRows;
  if (whole < rows) {
    pack_across(hn::CappedTag<float, kBlock>(), b + whole * p.ldb, p.ldb, block.depth, rows - whole,
                left_panel, kTileRows);
  }
  each_panel(block.piece.rows, [&](std::int64_t at, std::int64_t, auto vectors) {
    constexpr int count = decltype(vectors)::value;
    Tile tile{.k = block.depth,
              .a = nullptr,
              .a_stride = p.ldb,
              .b = panels + panel_at(at, block.depth),
              .b_stride = 0,
              .c = nullptr,
              .ldc = width,
              .rows = kTileRows,
              .columns = count * kLanes,
              .add = block.first > 0,
              .a_panel = nullptr,
              .b_panel = nullptr,
              .ahead = &ahead};
    for (std::int64_t row = 0; row < whole; row += kTileRows) {
      tile.a = b + row * p.ldb;
      tile.c = sums + row * width + at;
      multiply_tile<kTileRows, count, Left::rows, Right::panel>(tile);
    }
    if (whole < rows) {
      tile.a = left_panel;
      tile.c = sums + whole * width + at;
      tile.rows = rows - whole;
      multiply_tile<kTileRows, count, Left::panel, Right::panel>(tile);
    }
  });
}

/// Writes the sums, a row of `width` for each of `columns` columns of C, to C from `column` on.
void store_transposed(const MatmulParams& p, const Piece& piece, std::int64_t column,
                      std::int64_t columns, const float* sums, std::int64_t width) {
  const Floats d;
  float* c = static_cast<float*>(p.c) + piece.row * p.ldc + column;
  for (std::int64_t row = 0; row < piece.rows; row += kBlock) {
    const std::int64_t rows = std::min(kBlock, piece.rows - row);
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      FloatVec four[kBlock];
      load_four_across(d, sums + j * width + row, width, four);
      for (std::int64_t i = 0; i < rows; ++i) {
        store_row<1>(&four[i], c + (row + i) * p.ldc + j, std::min(kLanes, columns - j), false);
      }
    }
  }
}

void multiply_transposed_piece(const MatmulParams& p, const Piece& piece,
                               const ProductPiece* next) {
  thread_local Scratch scratch;
  const std::int64_t depth = gemm_depth(p.k);
  const std::int64_t width = divide_up(piece.rows, kLanes) * kLanes;
  const std::int64_t block_size = panel_at(width, depth);
  const std::int64_t blocks = divide_up(p.k, depth);
  auto* panels = scratch.get<float>(blocks * block_size + kRowsOfB * width + kTileRows * depth);
  float* sums = panels + blocks * block_size;
  float* left_panel = sums + kRowsOfB * width;
  const auto block_from = [&](std::int64_t first) {
    return Block{.p = p, .piece = piece, .first = first, .depth = std::min(depth, p.k - first)};
  };
  LinesAhead first_rows(rows_of_b(p, piece.column, piece.columns, 0), blocks);
  for (std::int64_t i = 0; i < blocks; ++i) {
    first_rows.prefetch();  // Unless the piece before has done so, they come from memory.
    pack_rows_of_a(block_from(i * depth), panels + i * block_size);
  }
  const std::int64_t end = piece.column + piece.columns;
  const std::int64_t panels_across = divide_up(width, kTileVectors * kLanes);
  for (std::int64_t column = piece.column; column < end; column += kRowsOfB) {
    const std::int64_t rows = std::min(kRowsOfB, end - column);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const Block block = block_from(i * depth);
      const std::int64_t tiles = divide_up(rows, kTileRows) * panels_across;
      LinesAhead ahead(rows_after(block, column, next), tiles * divide_up(block.depth, kSteps));
      multiply_rows_of_b(block, column, rows, panels + i * block_size, sums, width, left_panel,
                         ahead);
    }
    store_transposed(p, piece, column, rows, sums, width);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(multiply_transposed_piece);

bool is_transposed(const MatmulParams& p) {
  constexpr std::int64_t most_rows = 64;
  constexpr std::int64_t most_elements = 131'072;  // A^T stays in L2.
  return p.transpose_b && !p.transpose_a && !p.accumulate && !has_few_rows(p) && p.m <= most_rows &&
         p.n >= kRowsOfB && p.m * p.k <= most_elements;
}

void matmul_transposed_piece(const ProductPiece& one, const ProductPiece* next) {
  HWY_DYNAMIC_DISPATCH(multiply_transposed_piece)(one.product, one.piece, next);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
