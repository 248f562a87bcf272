#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/gemm/matmul.hpp"

namespace train::kernels {

/// Alignment in bytes of each operand's rows, on which a product algorithm may rely.
struct ProductAlignment {
  std::uint32_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
};

/// True if all three operands begin at a multiple of 16 bytes.
[[nodiscard]] bool begin_aligned(const MatmulParams& params);

/// Returns 16 bytes for an operand whose rows are whole vectors, otherwise its element size;
/// element sizes for all operands unless begin_aligned(). Depends on the shapes alone; an operand
/// with odd rows (logits of 50257 columns) does not lower the alignment of the others.
[[nodiscard]] ProductAlignment alignment_of(const MatmulParams& params);

/// Test and timing of a library's algorithms 0 to count - 1 for one product.
struct ProductTrial {
  /// True if an algorithm has, on random operands, the bits of algorithm 0; false if it fails.
  std::function<bool(std::size_t way)> same_bits;
  /// Time of one product, in seconds.
  std::function<double(std::size_t way)> seconds;
};

/// Chooses one of `count` >= 1 algorithms: the fastest with the bits of algorithm 0, or algorithm 0
/// if none is faster by 2 % or more. So timings, which differ between ranks and runs, never decide
/// bits.
[[nodiscard]] std::size_t choose_product(std::size_t count, const ProductTrial& trial);

}  // namespace train::kernels
