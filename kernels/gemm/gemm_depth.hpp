#pragma once

#include <cstdint>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {

/// The inner dimension is summed in equal blocks of at most this: long enough to hide what a tile
/// loads and stores, short enough for the caches. They decide the bits; nothing else does.
inline constexpr std::int64_t gemm_max_depth = 384;

[[nodiscard]] constexpr std::int64_t gemm_depth(std::int64_t k) {
  return divide_up(k, divide_up(k, gemm_max_depth));
}

/// A product of few rows, whose time is that of reading B once: B's elements are used where they
/// are loaded, and nothing is rearranged in memory. The bits are those of any other product.
[[nodiscard]] bool has_few_rows(const MatmulParams& p);
void matmul_few_rows(const MatmulParams& p, int threads);

}  // namespace train::kernels::cpu
