#include "kernels/elementwise.hpp"

#include <limits>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing {
namespace {

constexpr std::int64_t counts[] = {0, 1, 7, 64, 257, 50'001};

TEST_CASE("residual_add: out = x + scale * branch, also in place", "[kernels][elementwise]") {
  for (const std::int64_t count : counts) {
    const Values x = random_values(count, 1);
    const Values branch = random_values(count, 2);
    Exact expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected.push_back(static_cast<double>(x[i]) + 0.25 * static_cast<double>(branch[i]));
    }
    const auto compute = [&](int threads) {
      Values out = x;
      run(
          [&](Stream& stream) {
            cpu::residual_add(stream, {.x = out.data(),
                                       .branch = branch.data(),
                                       .out = out.data(),
                                       .scale = 0.25F,
                                       .count = count});
          },
          threads);
      return out;
    };
    require_near(compute(2), expected, 1e-7, "residual_add");  // One rounding.
    require_same_bits(compute, "residual_add");
  }
}

TEST_CASE("tree_add: adds once, rounding as a float addition", "[kernels][elementwise]") {
  for (const std::int64_t count : counts) {
    const Values left = random_values(count, 1);
    const Values right = random_values(count, 2);
    const auto compute = [&](int threads) {
      Values sum = left;
      run(
          [&](Stream& stream) {
            cpu::tree_add(stream, {.left = sum.data(), .right = right.data(), .count = count});
          },
          threads);
      return sum;
    };
    Values expected;
    for (std::size_t i = 0; i < left.size(); ++i) {
      expected.push_back(left[i] + right[i]);
    }
    REQUIRE(compute(2) == expected);
    require_same_bits(compute, "tree_add");
  }
}

TEST_CASE("fill and copy: every element and none beyond", "[kernels][elementwise]") {
  for (const std::int64_t count : {0, 1, 64, 70'001}) {
    for (const int threads : {1, 2, 3}) {
      Values filled = untouched_values(count + 2);
      Values copied = untouched_values(count + 2);
      const Values source = random_values(count, 4);
      run(
          [&](Stream& stream) {
            cpu::fill(stream, {.out = filled.data() + 1, .value = 2.5F, .count = count});
            cpu::copy(stream,
                      {.out = copied.data() + 1, .in = source.data(), .size_bytes = 4 * count});
          },
          threads);
      REQUIRE(filled.front() == untouched);
      REQUIRE(filled.back() == untouched);
      REQUIRE(copied.front() == untouched);
      REQUIRE(copied.back() == untouched);
      REQUIRE(Values(filled.begin() + 1, filled.end() - 1) == Values(source.size(), 2.5F));
      REQUIRE(Values(copied.begin() + 1, copied.end() - 1) == source);
    }
  }
}

TEST_CASE("count_nonfinite: counts NaN and both infinities, nothing else",
          "[kernels][elementwise]") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int threads : {1, 2, 3}) {
    Values x = random_values(50'003, 1);
    x[10] = std::numeric_limits<float>::max();
    x[11] = std::numeric_limits<float>::denorm_min();
    x[0] = std::nanf("");
    x[20'000] = infinity;
    x[50'002] = -infinity;
    std::int64_t nonfinite = -1;
    run(
        [&](Stream& stream) {
          cpu::count_nonfinite(stream,
                               {.x = x.data(), .count = std::ssize(x), .nonfinite = &nonfinite});
        },
        threads);
    REQUIRE(nonfinite == 3);
    run([&](Stream& stream) {
      cpu::count_nonfinite(stream, {.x = x.data(), .count = 0, .nonfinite = &nonfinite});
    });
    REQUIRE(nonfinite == 0);
  }
}

}  // namespace
}  // namespace train::kernels::testing
