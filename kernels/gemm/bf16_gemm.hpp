#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/matmul.hpp"

/// Products of f32 matrices whose elements are rounded to bf16 where they are read, with fp32 sums:
/// VDPBF16PS (AVX512_BF16), which multiplies twice as much at a time as fp32's instructions.
///
/// An element of C is a sum of blocks of `bf16_depth` terms, each one chain of fused multiply-adds
/// in the order of k, the last pair of a block filled up with zeros. Of the chain's operands and
/// partial sums those below 2^-126 are zero, as the instruction has it; blocks are added as
/// everywhere. The bits depend on nothing else: not on threads, nor on how C is cut.
namespace train::kernels::cpu {

/// Two bf16 of neighbouring k: the former in the upper half, which the instruction adds first.
using Bf16Pair = std::uint32_t;

inline constexpr std::int64_t bf16_max_depth = 768;

/// Terms of a block: equal blocks but for the last one, whole pairs and whole vectors of them.
[[nodiscard]] constexpr std::int64_t bf16_depth(std::int64_t k) {
  constexpr std::int64_t unit = 32;
  return divide_up(divide_up(k, divide_up(k, bf16_max_depth)), unit) * unit;
}

/// Whether this processor has the instruction.
[[nodiscard]] bool has_bf16_products();

/// REQUIRES: has_bf16_products().
void matmul_bf16(const MatmulParams& p, int threads);

/// The same bits where few rows of A do not pay for a rearranged B. REQUIRES: has_few_rows(p).
void matmul_bf16_few_rows(const MatmulParams& p, int threads);

}  // namespace train::kernels::cpu
