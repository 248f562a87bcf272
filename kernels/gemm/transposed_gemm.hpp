#pragma once

#include "kernels/gemm/gemm_pieces.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {

/// True for a product C = A B^T of a few dozen rows, which is computed as C^T = B A^T: the tiles
/// read the rows of B as they are stored, and only A, the smaller one, is rearranged. The bits are
/// those of any other product.
[[nodiscard]] bool is_transposed(const MatmulParams& p);

/// Computes a piece on the calling thread; `next` as in GemmPieces. REQUIRES: is_transposed().
void matmul_transposed_piece(const ProductPiece& one, const ProductPiece* next);

}  // namespace train::kernels::cpu
