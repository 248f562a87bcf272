#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/gemm/matmul.hpp"

namespace train::kernels {

/// What a way to compute a product may rely on: that each row of an operand begins at a multiple of
/// so many bytes.
struct ProductAlignment {
  std::uint32_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
};

/// Whether all three operands begin at a multiple of 16 bytes.
[[nodiscard]] bool begin_aligned(const MatmulParams& params);

/// 16 bytes of an operand of whole vectors, else those of its own elements, which may be wider or
/// narrower than the others'; of all operands where they do not begin_aligned(). So it is a matter
/// of the shapes and of that alone, and one operand with odd rows (logits of 50257 columns) leaves
/// the others what they have.
[[nodiscard]] ProductAlignment alignment_of(const MatmulParams& params);

/// What is tried of the ways, 0 to count - 1, in which a library computes one product.
struct ProductTrial {
  /// Whether a way has, on random operands, the bits of way 0; false where it fails.
  std::function<bool(std::size_t way)> same_bits;
  /// How long one product takes.
  std::function<double(std::size_t way)> seconds;
};

/// The way to keep of `count` (at least one): the fastest of those with the bits of way 0, or way 0
/// where none is faster by 2 % or more. So what is measured, which no two ranks and no two runs
/// measure alike, decides no bit.
[[nodiscard]] std::size_t choose_product(std::size_t count, const ProductTrial& trial);

}  // namespace train::kernels
