#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.hpp"

namespace train::bench {

/// One product of a training step: op(A) [m, k] times op(B) [k, n], and how often a lane has it.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t times = 1;
  [[nodiscard]] double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

/// All products of `rows` tokens through the model: forward, dX and dW of every matrix and of the
/// head, each over all rows at once. No attention.
[[nodiscard]] std::vector<Product> products_of(const engine::ModelSpec& model, std::int64_t rows);

/// Numbers to multiply, between -0.5 and 0.5.
[[nodiscard]] std::vector<float> operand(std::int64_t count);

/// Seconds of all of `products`, each at the GEMM library's own call (sgemm) with `threads`
/// threads: per product the median of a few runs. Blocks.
[[nodiscard]] double library_seconds(const std::vector<Product>& products, int threads);

/// The sum of flops() over all of them.
[[nodiscard]] double flops_of(const std::vector<Product>& products);

}  // namespace train::bench
