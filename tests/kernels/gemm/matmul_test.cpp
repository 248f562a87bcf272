#include "kernels/gemm/matmul.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/kernels/product_case.hpp"
#include "tests/support/devices/instruction_sets.hpp"

namespace train::kernels::testing::matmul_test {
namespace {

using Case = ProductCase;

Values product(const Case& t, int threads) {
  const Values a = t.a();
  const Values b = t.b();
  Values c = t.c();
  run([&](Stream& stream) { cpu::matmul(stream, t.params(a, b, c)); }, threads);
  return c;
}

Exact reference(const Case& t) {
  const Values a = t.a();
  const Values b = t.b();
  Exact c = exact(t.c());
  for (std::int64_t i = 0; i < t.m; ++i) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      double sum = t.accumulate ? c[at(i * t.ldc() + j)] : 0.0;
      for (std::int64_t k = 0; k < t.k; ++k) {
        sum += static_cast<double>(a[t.a_at(i, k)]) * static_cast<double>(b[t.b_at(k, j)]);
      }
      c[at(i * t.ldc() + j)] = sum;
    }
  }
  return c;
}

// A float sum of k products below 1: partial sums grow like sqrt(k), and so does the number of
// roundings that stay. A wrong element would be off by 1e-2.
double tolerance(std::int64_t k) { return 2e-7 + 6e-8 * static_cast<double>(k); }

TEST_CASE("matmul: a row has the same bits in a product of any number of rows",
          "[kernels][matmul]") {
  for (const auto& [n, k] : {std::tuple{1, 1}, {15, 383}, {48, 384}, {100, 770}, {53, 1153}}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const Case all{.m = 23,
                       .n = n,
                       .k = k,
                       .transpose_b = transpose_b,
                       .accumulate = accumulate,
                       .slack = 3};
        const Values expected = product(all, 2);
        for (std::int64_t m = 1; m <= 9; ++m) {
          Case some = all;
          some.m = m;
          const Values found = product(some, 2);
          CAPTURE(some.name());
          REQUIRE(std::equal(found.begin(), found.end(), expected.begin()));
        }
      }
    }
  }
}

/// What every product's bits are: chains of fused multiply-adds in order, over blocks of k, added
/// up.
Values chains(const Case& t) {
  constexpr std::int64_t most = 384;
  const std::int64_t blocks = (t.k + most - 1) / most;
  const std::int64_t depth = (t.k + blocks - 1) / blocks;
  const Values a = t.a();
  const Values b = t.b();
  Values c = t.c();
  for (std::int64_t i = 0; i < t.m; ++i) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      float& sum = c[at(i * t.ldc() + j)];
      for (std::int64_t first = 0; first < t.k; first += depth) {
        float chain = 0.0F;
        for (std::int64_t k = first; k < std::min(t.k, first + depth); ++k) {
          chain = std::fma(a[t.a_at(i, k)], b[t.b_at(k, j)], chain);
        }
        sum = t.accumulate || first > 0 ? sum + chain : chain;
      }
    }
  }
  return c;
}

TEST_CASE("matmul: an element is one chain after the other, whatever the tiles that it is in",
          "[kernels][matmul]") {
  for (const auto& shape : {std::tuple{3, 5, 2},
                            {9, 17, 385},
                            {16, 48, 384},
                            {23, 65, 770},
                            {29, 113, 3},
                            {101, 257, 130},
                            {17, 600, 385},
                            {203, 113, 130}}) {
    for (int variant = 0; variant < 8; ++variant) {
      const Case t = oriented(shape, variant);
      CAPTURE(t.name());
      // The gaps between the rows of C are compared as well: nobody may write there.
      REQUIRE(product(t, 2) == chains(t));
    }
  }
}

TEST_CASE("matmul: an element is such chains in products whose smaller operand alone is rearranged",
          "[kernels][matmul]") {
  for (const bool avx512 : {true, false}) {
    std::optional<test::WithoutAvx512> narrow;
    if (!avx512) {
      narrow.emplace();
    }
    for (const std::int64_t m : {9, 16, 17, 31, 32, 47, 49, 64, 65}) {
      for (const auto& [n, k] : {std::tuple{48, 5}, {49, 385}, {97, 48}, {151, 770}}) {
        const Case t{.m = m, .n = n, .k = k, .transpose_b = true, .slack = 3};
        CAPTURE(avx512, t.name());
        const Values expected = chains(t);
        REQUIRE(product(t, 1) == expected);
        REQUIRE(product(t, 3) == expected);
      }
    }
  }
}

TEST_CASE("matmul: an element of few rows that are longer than a cache is such chains, too",
          "[kernels][matmul]") {
  for (const int variant : {0, 1, 4}) {
    const Case t = oriented({157, 17, 27001}, variant);
    CAPTURE(t.name());
    const Values expected = chains(t);
    REQUIRE(product(t, 1) == expected);
    const test::WithoutAvx512 narrow;
    REQUIRE(product(t, 1) == expected);
  }
}

TEST_CASE("matmul: agrees with a double product in every orientation", "[kernels][matmul]") {
  for (const auto& shape : {std::tuple{1, 1, 1},
                            {1, 7, 5},
                            {7, 1, 64},
                            {5, 257, 33},
                            {130, 64, 7},
                            {64, 130, 257},
                            {200, 300, 150}}) {
    for (int variant = 0; variant < 8; ++variant) {
      const Case t = oriented(shape, variant);
      // The gaps between the rows of C are compared as well: nobody may write there.
      require_near(product(t, 2), reference(t), tolerance(t.k), t.name());
    }
  }
}

TEST_CASE("matmul: a product large enough for many panels is right", "[kernels][matmul]") {
  for (const Case& t : {Case{.m = 1000, .n = 300, .k = 130, .transpose_b = true},
                        Case{.m = 130, .n = 1500, .k = 200, .transpose_b = true},
                        Case{.m = 384, .n = 128, .k = 1024, .transpose_a = true}}) {
    require_near(product(t, 3), reference(t), tolerance(t.k), t.name());
  }
}

TEST_CASE("matmul: a grid of panels down and across is right, and the same at any threads",
          "[kernels][matmul]") {
  // 2 x 2, none of them whole vectors at the far ends.
  for (const Case& t : {Case{.m = 301, .n = 499, .k = 1000, .transpose_b = true, .slack = 1},
                        Case{.m = 301, .n = 499, .k = 1000, .accumulate = true},
                        Case{.m = 301, .n = 499, .k = 1000, .transpose_a = true, .slack = 2}}) {
    require_near(product(t, 3), reference(t), tolerance(t.k), t.name());
    require_same_bits([&](int threads) { return product(t, threads); }, t.name());
  }
}

TEST_CASE("matmul: the bits do not depend on the threads for the shapes of training",
          "[kernels][matmul]") {
  for (const std::int64_t tokens : {1, 63, 1024, 2048}) {
    for (const auto& [out, in] : {std::pair{384, 128},
                                  {128, 128},
                                  {512, 128},
                                  {128, 512},
                                  {257, 128},
                                  {320, 128},
                                  {768, 768}}) {
      if (tokens > 1024 && out == 768) {
        continue;  // Time.
      }
      for (const Case& t :
           {Case{.m = tokens, .n = out, .k = in, .transpose_b = true},
            Case{.m = tokens, .n = in, .k = out},
            Case{.m = out, .n = in, .k = tokens, .transpose_a = true, .accumulate = true}}) {
        require_same_bits([&](int threads) { return product(t, threads); }, t.name());
      }
    }
  }
}

TEST_CASE("matmul: an empty inner dimension is a sum of nothing", "[kernels][matmul]") {
  Values c = untouched_values(6);
  run([&](Stream& stream) {
    cpu::matmul(stream, {.c = c.data(), .m = 2, .n = 3, .k = 0, .ldb = 3, .ldc = 3});
  });
  REQUIRE(c == zeros(6));
  c.assign(6, 2.0F);
  run([&](Stream& stream) {
    cpu::matmul(stream,
                {.c = c.data(), .m = 2, .n = 3, .k = 0, .ldb = 3, .ldc = 3, .accumulate = true});
  });
  REQUIRE(c == Values(6, 2.0F));
}

TEST_CASE("matmul: NaN and Inf are not lost", "[kernels][matmul]") {
  Values a(64 * 64, 0.0F);
  const Values b(64 * 64, 1.0F);
  Values c(64 * 64);
  a[at(3 * 64 + 5)] = std::nanf("");
  run([&](Stream& stream) {
    cpu::matmul(stream, {.a = a.data(),
                         .b = b.data(),
                         .c = c.data(),
                         .m = 64,
                         .n = 64,
                         .k = 64,
                         .lda = 64,
                         .ldb = 64,
                         .ldc = 64});
  });
  REQUIRE(std::isnan(c[at(3 * 64)]));
  REQUIRE(c[at(4 * 64)] == 0.0F);
}

TEST_CASE("matmul: mistakes of the caller are caught before anything runs", "[kernels][matmul]") {
  const auto stream = make_inline_stream(1);
  Values x(16);
  MatmulParams p{.a = x.data(),
                 .b = x.data(),
                 .c = x.data(),
                 .m = 4,
                 .n = 4,
                 .k = 4,
                 .lda = 4,
                 .ldb = 4,
                 .ldc = 4};
  p.dtype = DType::bf16;
  REQUIRE_THROWS_WITH(cpu::matmul(*stream, p), Catch::Contains("f32"));
  p.dtype = DType::f32;
  p.lda = 3;
  REQUIRE_THROWS_WITH(cpu::matmul(*stream, p), Catch::Contains("lda=3"));
  p.lda = 4;
  p.b = nullptr;
  REQUIRE_THROWS_AS(cpu::matmul(*stream, p), CheckFailed);
}

}  // namespace
}  // namespace train::kernels::testing::matmul_test
