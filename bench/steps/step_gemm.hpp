#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.hpp"

namespace train::bench {

/// Product of a training step: op(A) [m, k] times op(B) [k, n], and its number per lane.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t times = 1;
  [[nodiscard]] double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

/// All products of `rows` tokens through the model: forward, dX and dW of every matrix and of the
/// head, each over all rows at once. Without attention.
[[nodiscard]] std::vector<Product> products_of(const engine::ModelSpec& model, std::int64_t rows);

/// Random operands between -0.5 and 0.5.
[[nodiscard]] std::vector<float> operand(std::int64_t count);

/// Total seconds of `products` with the GEMM library's own call (sgemm) on `threads` threads: per
/// product the median of a few runs. Blocks.
[[nodiscard]] double library_seconds(const std::vector<Product>& products, int threads);

/// The sum of flops() over all of them.
[[nodiscard]] double flops_of(const std::vector<Product>& products);

}  // namespace train::bench
