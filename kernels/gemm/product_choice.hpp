#pragma once

#include <cstddef>
#include <functional>

namespace train::kernels {

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
