#pragma once

#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {

struct ProductPiece {
  MatmulParams product;
  Piece piece;
};

/// A kernel set's product in pieces, for kernels that divide several products among their threads
/// at once. Every division gives the bits of the set's matmul.
struct GemmPieces {
  /// Division of one product among this many threads.
  Grid (*divide)(const MatmulParams& p, int threads);
  /// Computes a piece on the calling thread; all rows where has_few_rows(), as divide() has them.
  /// `next`, nullptr if there is none, is what the thread will probably compute afterwards: its
  /// first columns are prefetched. REQUIRES: terms, as is_done_without_terms() says.
  void (*multiply)(const ProductPiece& one, const ProductPiece* next);
};

[[nodiscard]] const GemmPieces& gemm_pieces();
/// REQUIRES for multiplying: has_bf16_products().
[[nodiscard]] const GemmPieces& bf16_gemm_pieces();

}  // namespace train::kernels::cpu
