#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "kernels/gemm/matmul.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing {

/// A product of random matrices; the strides are `slack` longer than the rows. `scale`: of A.
struct ProductCase {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t slack = 0;
  float scale = 1.0F;

  [[nodiscard]] std::int64_t lda() const { return (transpose_a ? m : k) + slack; }
  [[nodiscard]] std::int64_t ldb() const { return (transpose_b ? k : n) + slack; }
  [[nodiscard]] std::int64_t ldc() const { return n + slack; }
  [[nodiscard]] Values a() const { return random_values((transpose_a ? k : m) * lda(), 1, scale); }
  [[nodiscard]] Values b() const { return random_values((transpose_b ? n : k) * ldb(), 2); }
  [[nodiscard]] Values c() const {
    return accumulate ? random_values(m * ldc(), 3, scale) : untouched_values(m * ldc());
  }
  [[nodiscard]] std::size_t a_at(std::int64_t i, std::int64_t l) const {
    return at(transpose_a ? l * lda() + i : i * lda() + l);
  }
  [[nodiscard]] std::size_t b_at(std::int64_t l, std::int64_t j) const {
    return at(transpose_b ? j * ldb() + l : l * ldb() + j);
  }
  [[nodiscard]] std::string name() const {
    return "m=" + std::to_string(m) + " n=" + std::to_string(n) + " k=" + std::to_string(k) +
           (transpose_a ? " A^T" : "") + (transpose_b ? " B^T" : "") + (accumulate ? " +=" : "");
  }
  /// Of matrices with these strides. Borrows all three.
  [[nodiscard]] MatmulParams params(const Values& a, const Values& b, Values& c) const {
    return {.a = a.data(),
            .b = b.data(),
            .c = c.data(),
            .m = m,
            .n = n,
            .k = k,
            .lda = lda(),
            .ldb = ldb(),
            .ldc = ldc(),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate};
  }
};

/// The product of these m, n and k whose orientation, sum and gaps between rows are the bits of
/// `variant`, 0 to 7.
inline ProductCase oriented(const std::tuple<int, int, int>& shape, int variant) {
  const auto [m, n, k] = shape;
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = (variant & 1) != 0,
          .transpose_b = (variant & 2) != 0,
          .accumulate = (variant & 4) != 0,
          .slack = variant % 3};
}

}  // namespace train::kernels::testing
