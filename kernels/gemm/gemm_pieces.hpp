#pragma once

#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {

/// A kernel set's product in pieces, for kernels that divide several products among their threads
/// at once. Every division gives the bits of the set's matmul.
struct GemmPieces {
  /// Division of one product among this many threads.
  Grid (*divide)(const MatmulParams& p, int threads);
  /// Computes a piece on the calling thread; all rows where has_few_rows(p), as divide() has them.
  /// REQUIRES: terms, as is_done_without_terms() says.
  void (*multiply)(const MatmulParams& p, const Piece& piece);
};

[[nodiscard]] const GemmPieces& gemm_pieces();
/// REQUIRES for multiplying: has_bf16_products().
[[nodiscard]] const GemmPieces& bf16_gemm_pieces();

}  // namespace train::kernels::cpu
