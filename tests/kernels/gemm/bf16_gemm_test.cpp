#include "kernels/gemm/bf16_gemm.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "tests/kernels/kernel_fixture.hpp"
#include "tests/kernels/product_case.hpp"
#include "tests/support/devices/instruction_sets.hpp"

namespace train::kernels::testing::bf16_gemm_test {
namespace {

using Case = ProductCase;

/// The kernels in question; nullptr, and a word about it, where the processor lacks them.
const KernelTable* bf16_kernels() {
  if (cpu_bf16_backend() == nullptr) {
    WARN("skipped: this processor has no AVX512_BF16, so no products of bf16");
  }
  return cpu_bf16_backend();
}

/// What the instruction takes for zero, with its sign.
float flushed(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

/// An operand as the product sees it.
float rounded(float value) { return flushed(cpu::from_bf16(cpu::to_bf16(flushed(value)))); }

Values rounded(Values values) {
  std::transform(values.begin(), values.end(), values.begin(), [](float v) { return rounded(v); });
  return values;
}

Values product(const Case& t, const Values& a, const Values& b, int threads) {
  Values c = t.c();
  run([&](Stream& stream) { cpu_bf16_backend()->matmul(stream, t.params(a, b, c)); }, threads);
  return c;
}

Values product(const Case& t, int threads) { return product(t, t.a(), t.b(), threads); }

/// The order that bf16_gemm.hpp promises, an element at a time by fmaf.
Values in_order(const Case& t, const Values& all_a, const Values& all_b) {
  const Values a = rounded(all_a);
  const Values b = rounded(all_b);
  Values c = t.c();
  const std::int64_t depth = cpu::bf16_depth(t.k);
  for (std::int64_t i = 0; i < t.m; ++i) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      float& element = c[at(i * t.ldc() + j)];
      for (std::int64_t first = 0; first < t.k; first += depth) {
        const std::int64_t last = std::min(t.k, first + depth);
        float sum = 0.0F;
        for (std::int64_t l = first; l < last; ++l) {
          sum = flushed(std::fmaf(a[t.a_at(i, l)], b[t.b_at(l, j)], sum));
        }
        sum = (last - first) % 2 == 0 ? sum : sum + 0.0F;  // Turns -0 into 0.
        element = t.accumulate || first > 0 ? element + sum : sum;
      }
    }
  }
  return c;
}

/// The same bits, but NaN is NaN.
void require_bits(const Values& actual, const Values& expected, const std::string& what) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        std::bit_cast<std::uint32_t>(actual[i]) == std::bit_cast<std::uint32_t>(expected[i]) ||
        (std::isnan(actual[i]) && std::isnan(expected[i]));
    if (!same) {
      INFO(what << ": element " << i << " is " << actual[i] << ", not " << expected[i]);
      REQUIRE(same);
    }
  }
}

// Few rows, tiles that are not whole, odd numbers of terms, several blocks and columns.
const auto kShapes = {std::tuple{1, 1, 1}, {1, 7, 5},       {7, 1, 64},     {8, 33, 95},
                      {3, 50, 1600},       {130, 64, 7},    {64, 130, 257}, {9, 257, 769},
                      {17, 70, 1537},      {20, 300, 1153}, {601, 260, 65}};

TEST_CASE("bf16 products: each element has the bits of the order that is promised",
          "[kernels][matmul][bf16]") {
  if (bf16_kernels() == nullptr) {
    return;
  }
  for (const auto& shape : kShapes) {
    for (int bits = 0; bits < 8; ++bits) {
      const Case t = oriented(shape, bits);
      // The gaps between the rows of C are compared as well: nobody may write there.
      require_bits(product(t, 2), in_order(t, t.a(), t.b()), t.name());
    }
  }
}

TEST_CASE("bf16 products: tiny values, infinities and NaNs come through as promised",
          "[kernels][matmul][bf16]") {
  if (bf16_kernels() == nullptr) {
    return;
  }
  using Limits = std::numeric_limits<float>;
  const float special[] = {-0.0F,
                           Limits::denorm_min(),
                           -Limits::min() / 2,
                           std::nextafter(Limits::min(), 0.0F),
                           Limits::min(),
                           Limits::max(),
                           Limits::infinity(),
                           Limits::quiet_NaN(),
                           std::bit_cast<float>(0x7f800001U),
                           std::bit_cast<float>(0x3f808000U),   // Ties, to even
                           std::bit_cast<float>(0x3f818000U)};  // on either side.
  for (const auto& shape : {std::tuple{6, 40, 65}, {40, 70, 64}, {40, 70, 33}}) {
    for (int bits = 0; bits < 8; ++bits) {
      for (const float scale : {1.0F, 0x1p-120F, 0x1p-126F}) {
        Case t = oriented(shape, bits);
        t.scale = scale;
        Values a = t.a();
        Values b = t.b();
        for (std::size_t i = 0; i < std::size(special); ++i) {
          a[(i * 37 + 5) % a.size()] = special[i];
          b[(i * 61 + 9) % b.size()] = special[i];
        }
        require_bits(product(t, a, b, 2), in_order(t, a, b), t.name());
      }
    }
  }
}

TEST_CASE("bf16 products: agree with a double product of rounded operands",
          "[kernels][matmul][bf16]") {
  if (bf16_kernels() == nullptr) {
    return;
  }
  for (const auto& shape : {std::tuple{5, 257, 33}, {200, 300, 150}, {70, 100, 2000}}) {
    for (int bits = 0; bits < 8; ++bits) {
      const Case t = oriented(shape, bits);
      const Values a = rounded(t.a());
      const Values b = rounded(t.b());
      Exact expected = exact(t.c());
      for (std::int64_t i = 0; i < t.m; ++i) {
        for (std::int64_t j = 0; j < t.n; ++j) {
          double sum = t.accumulate ? expected[at(i * t.ldc() + j)] : 0.0;
          for (std::int64_t l = 0; l < t.k; ++l) {
            sum += static_cast<double>(a[t.a_at(i, l)]) * static_cast<double>(b[t.b_at(l, j)]);
          }
          expected[at(i * t.ldc() + j)] = sum;
        }
      }
      // Of rounded operands every product is exact in fp32; what remains are the roundings of a
      // float sum of k terms below 1, as in matmul_test.
      require_near(product(t, 2), expected, 2e-7 + 6e-8 * static_cast<double>(t.k), t.name());
    }
  }
}

TEST_CASE("bf16 products: the bits do not depend on the threads", "[kernels][matmul][bf16]") {
  if (bf16_kernels() == nullptr) {
    return;
  }
  for (const Case& t : {Case{.m = 301, .n = 499, .k = 1000, .transpose_b = true, .slack = 1},
                        Case{.m = 301, .n = 499, .k = 1000, .accumulate = true},
                        Case{.m = 901, .n = 499, .k = 300, .transpose_a = true, .slack = 2},
                        Case{.m = 1, .n = 1003, .k = 1000, .transpose_b = true},
                        Case{.m = 8, .n = 1003, .k = 1000}}) {
    require_same_bits([&](int threads) { return product(t, threads); }, t.name());
  }
}

TEST_CASE("bf16 products: a row has the same bits in a product of any number of rows",
          "[kernels][matmul][bf16]") {
  if (bf16_kernels() == nullptr) {
    return;
  }
  for (const auto& [n, k] : {std::tuple{1, 1}, {15, 383}, {48, 384}, {100, 770}, {53, 1153}}) {
    for (const int bits : {0, 2, 4, 6}) {
      Case t = oriented({23, n, k}, bits);
      const Values expected = product(t, 2);
      for (t.m = 1; t.m <= 9; ++t.m) {
        const Values found = product(t, 2);
        CAPTURE(t.name());
        REQUIRE(std::equal(found.begin(), found.end(), expected.begin()));
      }
    }
  }
}

/// Losses and log-probabilities of a head of one block of terms, by the kernels of `table`.
struct HeadRun {
  static constexpr std::int64_t rows = 21, cols = 96, vocab = 67;

  HeadRun(const KernelTable& table, const Values& x, const Values& weight) {
    std::vector<std::int32_t> targets(rows);
    for (std::int32_t row = 0; row < rows; ++row) {
      targets[at(row)] = row * 5 % 67 - (row == 3 ? 16 : 0);  // One is -1.
    }
    Values logits = zeros(8 * vocab);
    Exact row_terms(at(rows * 4));
    run([&](Stream& stream) {
      table.head_loss(stream, {.x = x.data(),
                               .weight = weight.data(),
                               .targets = targets.data(),
                               .sums = &sums,
                               .dx = dx.data(),
                               .dweight = dweight.data(),
                               .logits = logits.data(),
                               .row_terms = row_terms.data(),
                               .rows = rows,
                               .cols = cols,
                               .vocab = vocab,
                               .chunk_rows = 8});
      table.token_log_probs(stream, {.x = x.data(),
                                     .weight = weight.data(),
                                     .targets = targets.data(),
                                     .results = {.log_probs = log_probs.data()},
                                     .logits = logits.data(),
                                     .rows = rows,
                                     .cols = cols,
                                     .vocab = vocab,
                                     .chunk_rows = 8});
    });
  }

  LossSums sums;
  Values dx = untouched_values(rows * cols), dweight = untouched_values(vocab * cols);
  Values log_probs = untouched_values(rows);
};

TEST_CASE("bf16 products: the head has them, and else the arithmetic of fp32",
          "[kernels][head_loss][bf16]") {
  const KernelTable* const bf16 = bf16_kernels();
  if (bf16 == nullptr) {
    return;
  }
  const Values x = random_values(HeadRun::rows * HeadRun::cols, 1);
  const Values weight = random_values(HeadRun::vocab * HeadRun::cols, 2);
  const HeadRun found(*bf16, x, weight);
  // Both chains are the same where there is one block, of operands that are bf16.
  const HeadRun expected(cpu_backend(), rounded(x), rounded(weight));
  CHECK(found.sums.cross_entropy == expected.sums.cross_entropy);
  CHECK(found.sums.targets == 20.0);
  CHECK(found.log_probs == expected.log_probs);
  // A gradient of a logit is rounded once, by 2^-9 of it; those of a row are below 1 in sum.
  require_near(found.dx, exact(expected.dx), 0x1p-8, "dx");
  require_near(found.dweight, exact(expected.dweight), 0x1p-8, "dweight");
  CHECK(found.dx != expected.dx);
}

TEST_CASE("bf16 products: are a kernel set of their own, which not every processor has",
          "[kernels][backend][bf16]") {
  if (const KernelTable* const bf16 = bf16_kernels()) {
    CHECK(bf16->kernel_set() == "cpu-bf16-2");
    CHECK(bf16->device == cpu_backend().device);
    CHECK(measure_gemm_flops(1, 0.05, DType::bf16) > 1e8);
  }
  const test::WithoutAvx512 narrow;
  CHECK(cpu_bf16_backend() == nullptr);
}

}  // namespace
}  // namespace train::kernels::testing::bf16_gemm_test
