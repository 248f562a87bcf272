// Which of a library's ways to compute a product is kept.
#include "kernels/gemm/product_choice.hpp"
#include "kernels/gemm/matmul.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace train::kernels::product_choice_test {
namespace {

struct Way {
  double seconds = 0.0;
  bool same_bits = true;
};

std::size_t choice_of(const std::vector<Way>& ways) {
  return choose_product(ways.size(),
                        {.same_bits = [&](std::size_t way) { return ways[way].same_bits; },
                         .seconds = [&](std::size_t way) { return ways[way].seconds; }});
}

TEST_CASE("product choice: the fastest way is kept", "[kernels][matmul]") {
  CHECK(choice_of({{1.0}, {0.9}, {0.7}, {0.8}}) == 2);
  CHECK(choice_of({{1.0}, {1.1}}) == 0);
  CHECK(choice_of({{1.0}}) == 0);
}

TEST_CASE("product choice: a way with other bits is not kept, however fast it is",
          "[kernels][matmul][P1]") {
  CHECK(choice_of({{1.0}, {0.1, false}, {0.9}}) == 2);
  CHECK(choice_of({{1.0}, {0.1, false}}) == 0);
}

TEST_CASE("product choice: what is hardly faster replaces nothing", "[kernels][matmul]") {
  CHECK(choice_of({{1.0}, {0.99}}) == 0);
  CHECK(choice_of({{1.0}, {0.97}}) == 1);
}

TEST_CASE("product choice: nothing is measured of a way with other bits, nor of one alone",
          "[kernels][matmul]") {
  std::multiset<std::size_t> measured;
  const ProductTrial trial{.same_bits = [](std::size_t way) { return way != 1; },
                           .seconds =
                               [&](std::size_t way) {
                                 measured.insert(way);
                                 return 1.0;
                               }};
  CHECK(choose_product(1, trial) == 0);
  CHECK(measured.empty());
  CHECK(choose_product(3, trial) == 0);
  CHECK(measured == std::multiset<std::size_t>{0, 2});
}

TEST_CASE("product choice: each operand is as aligned as its own rows and elements",
          "[kernels][matmul]") {
  // Logits of 50257 columns: odd rows of fp32, of operands of bf16 with whole ones.
  alignas(16) static const std::byte data[32] = {};
  alignas(16) static std::byte result[32] = {};
  MatmulParams logits{.a = data,
                      .b = data,
                      .c = result,
                      .m = 4,
                      .n = 50257,
                      .k = 768,
                      .lda = 768,
                      .ldb = 768,
                      .ldc = 50257,
                      .transpose_b = true,
                      .dtype = DType::bf16};
  ProductAlignment alignment = alignment_of(logits);
  CHECK(alignment.a_bytes == 16);
  CHECK(alignment.b_bytes == 16);
  CHECK(alignment.c_bytes == sizeof(float));
  // Their gradients, as bf16 at the begin of rows of so many floats.
  logits.lda = 2 * 50257;
  logits.ldc = 768;
  alignment = alignment_of(logits);
  CHECK(alignment.a_bytes == sizeof(std::uint16_t));
  CHECK(alignment.b_bytes == 16);
  CHECK(alignment.c_bytes == 16);
  // Where one begins elsewhere, nothing is promised of any.
  logits.b = data + 2;
  CHECK_FALSE(begin_aligned(logits));
  alignment = alignment_of(logits);
  CHECK(alignment.b_bytes == sizeof(std::uint16_t));
  CHECK(alignment.c_bytes == sizeof(float));
}

}  // namespace
}  // namespace train::kernels::product_choice_test
