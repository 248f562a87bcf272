#pragma once

#include <cstdint>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {

/// Largest block of the inner dimension, which is summed in equal blocks: long enough to hide a
/// tile's loads and stores, short enough for the caches. The blocks alone determine the bits.
inline constexpr std::int64_t kGemmMaxDepth = 384;

[[nodiscard]] constexpr std::int64_t gemm_depth(std::int64_t k) {
  return divide_up(k, divide_up(k, kGemmMaxDepth));
}

/// True for a product of so few rows that reading B once dominates: B's elements are used as they
/// are loaded, without rearranging. The bits are those of any other product.
[[nodiscard]] bool has_few_rows(const MatmulParams& p);
void matmul_few_rows(const MatmulParams& p, int threads);
/// The columns of `piece` of such a product, all its rows, on the calling thread.
void matmul_few_rows_piece(const MatmulParams& p, const Piece& piece);

}  // namespace train::kernels::cpu
