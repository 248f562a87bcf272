#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "kernels/gemm/matmul.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::expert_matmul_test {
namespace {

constexpr ExpertProduct kProducts[] = {ExpertProduct::output, ExpertProduct::input,
                                       ExpertProduct::weight};

/// Products of experts with `places` places each; rows have `slack` elements between them, and so
/// have matrices.
struct Case {
  ExpertProduct product = ExpertProduct::output;
  std::vector<std::int32_t> places;
  std::int64_t n, k;
  bool accumulate = false;
  std::int64_t slack = 0;

  [[nodiscard]] bool gradient() const { return product == ExpertProduct::weight; }
  [[nodiscard]] std::int64_t experts() const { return std::ssize(places); }
  [[nodiscard]] std::int64_t all() const {
    return std::accumulate(places.begin(), places.end(), std::int64_t{0});
  }
  [[nodiscard]] Numbers offsets() const {
    Numbers sums(places.size() + 1);
    std::partial_sum(places.begin(), places.end(), sums.begin() + 1);
    return sums;
  }
  [[nodiscard]] std::int64_t lda() const {
    return (product == ExpertProduct::output ? k : n) + slack;
  }
  [[nodiscard]] std::int64_t ldb() const { return k + slack; }
  [[nodiscard]] std::int64_t ldc() const {
    return (product == ExpertProduct::output ? n : k) + slack;
  }
  [[nodiscard]] std::int64_t stride() const { return n * (k + slack) + 2 * slack; }
  [[nodiscard]] Values a() const { return random_values(all() * lda(), 1); }
  [[nodiscard]] Values b() const {
    return random_values(gradient() ? all() * ldb() : experts() * stride(), 2);
  }
  [[nodiscard]] Values c() const {
    const std::int64_t size = gradient() ? experts() * stride() : all() * ldc();
    return accumulate ? random_values(size, 3) : untouched_values(size);
  }
  [[nodiscard]] std::string name() const {
    return "product " + std::to_string(static_cast<int>(product)) + " n=" + std::to_string(n) +
           " k=" + std::to_string(k) + " experts=" + std::to_string(experts()) +
           (accumulate ? " +=" : "");
  }
};

Values products(const KernelTable& kernels, const Case& t, int threads) {
  const Values a = t.a();
  const Values b = t.b();
  const Numbers offsets = t.offsets();
  Values c = t.c();
  run(
      [&](Stream& stream) {
        kernels.expert_matmul(stream, {.product = t.product,
                                       .a = a.data(),
                                       .b = b.data(),
                                       .c = c.data(),
                                       .offsets = offsets.data(),
                                       .experts = t.experts(),
                                       .places = t.all(),
                                       .n = t.n,
                                       .k = t.k,
                                       .lda = t.lda(),
                                       .ldb = t.ldb(),
                                       .ldc = t.ldc(),
                                       .stride = t.stride(),
                                       .accumulate = t.accumulate});
      },
      threads);
  return c;
}

/// matmul() of each expert's places alone.
Values one_by_one(const KernelTable& kernels, const Case& t) {
  const Values a = t.a();
  const Values b = t.b();
  const Numbers offsets = t.offsets();
  Values c = t.c();
  run([&](Stream& stream) {
    for (std::int64_t e = 0; e < t.experts(); ++e) {
      const std::int64_t first = offsets[at(e)];
      MatmulParams p{.a = a.data() + first * t.lda(),
                     .b = b.data() + (t.gradient() ? first * t.ldb() : e * t.stride()),
                     .c = c.data() + (t.gradient() ? e * t.stride() : first * t.ldc()),
                     .m = t.places[at(e)],
                     .n = t.product == ExpertProduct::output ? t.n : t.k,
                     .k = t.product == ExpertProduct::output ? t.k : t.n,
                     .lda = t.lda(),
                     .ldb = t.ldb(),
                     .ldc = t.ldc(),
                     .transpose_b = t.product == ExpertProduct::output,
                     .accumulate = t.accumulate};
      if (t.gradient()) {
        p.m = t.n;
        p.k = t.places[at(e)];
        p.transpose_a = true;
      }
      kernels.matmul(stream, p);
    }
  });
  return c;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// No place, few, many, most of them all, and an inner dimension of several blocks; one expert.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ExpertProduct product : kProducts) {
    for (const bool accumulate : {false, true}) {
      for (const std::vector<std::int32_t>& places :
           {std::vector<std::int32_t>{0, 1, 5, 9, 0, 40, 800, 2, 0}, {0, 0, 0}, {33}, {1, 1, 1}}) {
        for (const auto& [n, k] :
             {std::pair<std::int64_t, std::int64_t>{50, 390}, {17, 33}, {800, 48}, {1, 1}}) {
          all.push_back({.product = product,
                         .places = places,
                         .n = n,
                         .k = k,
                         .accumulate = accumulate,
                         .slack = n % 3});
        }
      }
    }
  }
  return all;
}

TEST_CASE("expert_matmul: each expert has the bits of a product of its places alone",
          "[kernels][expert_matmul][P1]") {
  for (const KernelTable* kernels : cpu_kernel_sets()) {
    for (const Case& t : cases()) {
      CAPTURE(t.name(), kernels->kernel_set());
      const Values expected = one_by_one(*kernels, t);
      for (const int threads : {1, 2, 3}) {
        // The gaps between rows and matrices are compared as well: nobody may write there.
        CHECK(same_bits(products(*kernels, t, threads), expected));
      }
    }
  }
}

TEST_CASE("expert_matmul: agrees with a double product", "[kernels][expert_matmul]") {
  const std::vector<std::int32_t> places = {3, 0, 14};
  for (const ExpertProduct product : kProducts) {
    const Case t{.product = product, .places = places, .n = 7, .k = 10};
    const Exact a = exact(t.a());
    const Exact b = exact(t.b());
    Exact expected(t.c().size());
    const Numbers offsets = t.offsets();
    for (std::int64_t e = 0; e < t.experts(); ++e) {
      for (std::int64_t place = offsets[at(e)]; place < offsets[at(e + 1)]; ++place) {
        for (std::int64_t i = 0; i < t.n * t.k; ++i) {
          const std::int64_t row = i / t.k;
          const std::int64_t column = i % t.k;
          const std::int64_t weight = e * t.stride() + i;
          if (product == ExpertProduct::output) {
            expected[at(place * t.n + row)] += a[at(place * t.k + column)] * b[at(weight)];
          } else if (product == ExpertProduct::input) {
            expected[at(place * t.k + column)] += a[at(place * t.n + row)] * b[at(weight)];
          } else {
            expected[at(weight)] += a[at(place * t.n + row)] * b[at(place * t.k + column)];
          }
        }
      }
    }
    require_near(products(cpu_backend(), t, 2), expected, 1e-6, t.name());
  }
}

TEST_CASE("expert_matmul: an expert without places has a gradient of +0",
          "[kernels][expert_matmul]") {
  for (const KernelTable* kernels : cpu_kernel_sets()) {
    const Case t{.product = ExpertProduct::weight, .places = {2, 0, 1}, .n = 3, .k = 70};
    const Values c = products(*kernels, t, 2);
    CHECK(same_bits(Values(c.begin() + 210, c.begin() + 420), zeros(210)));
  }
}

TEST_CASE("expert_matmul: a row has the same bits beside any other rows",
          "[kernels][expert_matmul][P1]") {
  for (const KernelTable* kernels : cpu_kernel_sets()) {
    for (const ExpertProduct product : {ExpertProduct::output, ExpertProduct::input}) {
      // Rows of the first expert, whose inputs are the same in both.
      const Case alone{.product = product, .places = {1}, .n = 390, .k = 391};
      const Case among{.product = product, .places = {29}, .n = 390, .k = 391};
      const Values one = products(*kernels, alone, 2);
      const Values all = products(*kernels, among, 2);
      CHECK(same_bits(one, Values(all.begin(), all.begin() + std::ssize(one))));
    }
  }
}

TEST_CASE("expert_matmul: neighbouring experts have the bits that they have among all",
          "[kernels][expert_matmul][P1]") {
  for (const ExpertProduct product : kProducts) {
    const Case t{.product = product, .places = {4, 11, 0, 30, 2}, .n = 21, .k = 50};
    const Values a = t.a();
    const Values b = t.b();
    const Numbers offsets = t.offsets();
    Values c = t.c();
    const auto some = [&](std::int64_t first, std::int64_t experts) {
      const std::int64_t matrix = first * t.stride();
      run([&](Stream& stream) {
        cpu::expert_matmul(stream, {.product = product,
                                    .a = a.data(),
                                    .b = b.data() + (t.gradient() ? 0 : matrix),
                                    .c = c.data() + (t.gradient() ? matrix : 0),
                                    .offsets = offsets.data() + first,
                                    .experts = experts,
                                    .places = t.all(),
                                    .n = t.n,
                                    .k = t.k,
                                    .lda = t.lda(),
                                    .ldb = t.ldb(),
                                    .ldc = t.ldc(),
                                    .stride = t.stride()});
      });
    };
    some(0, 1);
    some(1, 3);
    some(4, 1);
    CHECK(same_bits(c, products(cpu_backend(), t, 2)));
  }
}

TEST_CASE("expert_matmul: NaN is not lost, and stays with its expert", "[kernels][expert_matmul]") {
  const Values a = {1.0F, std::nanf(""), 0.0F, 0.0F};
  const Values b(8, 1.0F);
  const Numbers offsets = {0, 1, 2};
  Values c = zeros(4);
  run([&](Stream& stream) {
    cpu::expert_matmul(stream, {.a = a.data(),
                                .b = b.data(),
                                .c = c.data(),
                                .offsets = offsets.data(),
                                .experts = 2,
                                .places = 2,
                                .n = 2,
                                .k = 2,
                                .lda = 2,
                                .ldb = 2,
                                .ldc = 2,
                                .stride = 4});
  });
  CHECK(std::isnan(c[0]));
  CHECK(c[2] == 0.0F);
}

TEST_CASE("expert_matmul: mistakes are caught, of sizes before anything runs",
          "[kernels][expert_matmul]") {
  const auto stream = make_inline_stream(1);
  Values x(64);
  Numbers offsets = {0, 1, 2};
  ExpertMatmulParams p{.a = x.data(),
                       .b = x.data(),
                       .c = x.data() + 32,
                       .offsets = offsets.data(),
                       .experts = 2,
                       .places = 2,
                       .n = 3,
                       .k = 2,
                       .lda = 2,
                       .ldb = 2,
                       .ldc = 3,
                       .stride = 5};
  CHECK_THROWS_WITH(cpu::expert_matmul(*stream, p), Catch::Contains("stride=5"));
  p.stride = 6;
  p.ldc = 2;
  CHECK_THROWS_WITH(cpu::expert_matmul(*stream, p), Catch::Contains("ldc=2"));
  p.ldc = 3;
  p.dtype = DType::bf16;
  CHECK_THROWS_WITH(cpu::expert_matmul(*stream, p), Catch::Contains("f32"));
  p.dtype = DType::f32;
  offsets[1] = 3;  // Data, which only the running kernel sees.
  CHECK_THROWS_WITH((cpu::expert_matmul(*stream, p), stream->synchronize()),
                    Catch::Contains("places of expert 0"));
}

}  // namespace
}  // namespace train::kernels::testing::expert_matmul_test
