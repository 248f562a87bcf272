#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"

/// Products of f32 matrices whose elements are rounded to bf16 when read, with fp32 sums: VDPBF16PS
/// (AVX512_BF16), twice the multiplies per instruction of fp32.
///
/// An element of C is a sum of blocks of `bf16_depth` terms. Each block is one chain of fused
/// multiply-adds in the order of k, its last pair filled up with zeros. As the instruction defines,
/// operands and partial sums below 2^-126 count as zero; blocks are added with ordinary fp32
/// additions. The bits depend on nothing else: neither threads nor the division of C.
namespace train::kernels::cpu {

/// Two bf16 of neighbouring k: the former in the upper half, which the instruction adds first.
using Bf16Pair = std::uint32_t;

inline constexpr std::int64_t kBf16MaxDepth = 768;

/// Terms per block: equal blocks except the last, in whole pairs and whole vectors.
[[nodiscard]] constexpr std::int64_t bf16_depth(std::int64_t k) {
  constexpr std::int64_t unit = 32;
  return divide_up(divide_up(k, divide_up(k, kBf16MaxDepth)), unit) * unit;
}

/// True if this processor has AVX512_BF16.
[[nodiscard]] bool has_bf16_products();

/// REQUIRES: has_bf16_products().
void matmul_bf16(const MatmulParams& p, int threads);

/// matmul_bf16() with the same bits, for so few rows of A that rearranging B does not pay.
/// REQUIRES: has_few_rows(p).
void matmul_bf16_few_rows(const MatmulParams& p, int threads);
/// The columns of `piece` of such a product, all its rows, on the calling thread.
void matmul_bf16_few_rows_piece(const MatmulParams& p, const Piece& piece);

}  // namespace train::kernels::cpu
