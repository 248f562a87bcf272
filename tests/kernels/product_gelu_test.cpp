#include <string>
#include <tuple>
#include <vector>

#include "kernels/gemm/matmul.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/kernels/product_case.hpp"

namespace train::kernels::testing {
namespace {

using Case = ProductCase;

/// C and its partner, one after the other.
using Pair = Values;

/// The product with GELU on its way.
Pair fused(const KernelTable& kernels, const Case& t, ProductGelu gelu, int threads) {
  const Values a = t.a();
  const Values b = t.b();
  Values c = t.c();
  Values partner = random_values(t.m * t.n, 4, 3.0F);
  run(
      [&](Stream& stream) {
        MatmulParams params = t.params(a, b, c);
        params.gelu = gelu;
        params.partner = partner.data();
        kernels.matmul(stream, params);
      },
      threads);
  return joined({c, partner});
}

/// The same in two kernels.
Pair separate(const KernelTable& kernels, const Case& t, ProductGelu gelu) {
  const Values a = t.a();
  const Values b = t.b();
  Values c = t.c();
  Values partner = random_values(t.m * t.n, 4, 3.0F);
  run([&](Stream& stream) {
    kernels.matmul(stream, t.params(a, b, c));
    if (gelu == ProductGelu::forward) {
      kernels.gelu_forward(stream, {.x = c.data(), .y = partner.data(), .count = t.m * t.n});
    } else {
      kernels.gelu_backward(stream, {.x = partner.data(),
                                     .dy = c.data(),
                                     .dx = partner.data(),
                                     .y = c.data(),
                                     .count = t.m * t.n});
    }
  });
  return joined({c, partner});
}

std::vector<const KernelTable*> kernel_tables() {
  if (cpu_bf16_backend() == nullptr) {
    return {&cpu_backend()};
  }
  return {&cpu_backend(), cpu_bf16_backend()};
}

/// Few rows, rows and columns that are left of tiles, several blocks of the inner dimension, more
/// columns than stay in a cache, and no terms at all.
TEST_CASE("product with GELU: the bits of a product and a GELU after it", "[kernels][matmul]") {
  for (const auto& [m, n, k] : {std::tuple{1, 70, 5},
                                {8, 48, 400},
                                {9, 17, 385},
                                {61, 97, 130},
                                {23, 65, 1600},
                                {40, 1700, 390},
                                {12, 33, 0}}) {
    for (const bool across : {false, true}) {
      for (const ProductGelu gelu : {ProductGelu::forward, ProductGelu::backward}) {
        for (const KernelTable* kernels : kernel_tables()) {
          const Case t{.m = m, .n = n, .k = k, .transpose_b = across};
          const Pair expected = separate(*kernels, t, gelu);
          INFO(kernels->kernel_set()
               << ", " << t.name() << ", backward: " << (gelu == ProductGelu::backward));
          for (const int threads : {1, 2, 3}) {
            REQUIRE(fused(*kernels, t, gelu, threads) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("product with GELU: of a sum, when all of it is there", "[kernels][matmul]") {
  for (const ProductGelu gelu : {ProductGelu::forward, ProductGelu::backward}) {
    const Case t{.m = 30, .n = 53, .k = 800, .transpose_a = true, .accumulate = true};
    REQUIRE(fused(cpu_backend(), t, gelu, 2) == separate(cpu_backend(), t, gelu));
  }
}

TEST_CASE("product with GELU: rows with gaps and a missing partner are refused",
          "[kernels][matmul]") {
  const Case t{.m = 4, .n = 6, .k = 3, .slack = 1};
  const Values a = t.a();
  const Values b = t.b();
  Values c = t.c();
  const auto stream = make_inline_stream(1);
  MatmulParams params = t.params(a, b, c);
  params.gelu = ProductGelu::forward;
  params.partner = c.data();
  REQUIRE_THROWS_WITH(cpu_backend().matmul(*stream, params),
                      Catch::Contains("GELU of rows with gaps, ldc=7 n=6"));
  params.ldc = params.n;
  params.partner = nullptr;
  REQUIRE_THROWS_WITH(cpu_backend().matmul(*stream, params), Catch::Contains("null pointer"));
}

}  // namespace
}  // namespace train::kernels::testing
