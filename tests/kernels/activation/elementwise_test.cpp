#include "kernels/activation/elementwise.hpp"

#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::elementwise_test {
namespace {

constexpr std::int64_t counts[] = {0, 1, 7, 64, 257, 50'001};

TreeAddParams tree_add_params(const Values& left, const Values& right, Values& out) {
  return {.left = left.data(), .right = right.data(), .out = out.data(), .count = std::ssize(out)};
}

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
      Values sum = zeros(count);
      run([&](Stream& stream) { cpu::tree_add(stream, tree_add_params(left, right, sum)); },
          threads);
      return sum;
    };
    Values expected;
    for (std::size_t i = 0; i < left.size(); ++i) {
      expected.push_back(left[i] + right[i]);
    }
    REQUIRE(compute(2) == expected);
    require_same_bits(compute, "tree_add");
    Values in_place = left;
    run([&](Stream& stream) { cpu::tree_add(stream, tree_add_params(in_place, right, in_place)); });
    REQUIRE(in_place == expected);
  }
}

TEST_CASE("tree_add: the bits do not depend on where a range is cut", "[kernels][elementwise]") {
  constexpr std::int64_t count = 301;
  const Values left = random_values(count, 1);
  const Values right = random_values(count, 2);
  Values whole = zeros(count);
  run([&](Stream& stream) { cpu::tree_add(stream, tree_add_params(left, right, whole)); });
  // Each piece begins at another 4-byte alignment in all three buffers.
  for (std::int64_t cut = 1; cut < 70; ++cut) {
    Values parts = zeros(count);
    run([&](Stream& stream) {
      for (std::int64_t first = 0; first < count; first += cut) {
        cpu::tree_add(stream, {.left = left.data() + first,
                               .right = right.data() + first,
                               .out = parts.data() + first,
                               .count = std::min(cut, count - first)});
      }
    });
    CAPTURE(cut);
    REQUIRE(parts == whole);
  }
}

TEST_CASE("scale: y = scale x, times a factor of the device's, wherever a range is cut",
          "[kernels][elementwise]") {
  const float factor = -1.7F;
  for (const std::int64_t count : counts) {
    const Values x = random_values(count, 2);
    for (const float* read : {static_cast<const float*>(nullptr), &factor}) {
      const float scale = read == nullptr ? 0.3F : 0.3F * factor;
      for (const std::int64_t cut : {count + 1, 1 + count / 7}) {
        const auto compute = [&](int threads) {
          Values out = x;  // In place where x is y.
          run(
              [&](Stream& stream) {
                for (std::int64_t first = 0; first < count; first += cut) {
                  cpu::scale(stream, {.x = cut > count ? x.data() : out.data() + first,
                                      .y = out.data() + first,
                                      .scale = 0.3F,
                                      .factor = read,
                                      .count = std::min(cut, count - first)});
                }
              },
              threads);
          return out;
        };
        Values expected;
        for (const float value : x) {
          expected.push_back(scale * value);
        }
        REQUIRE((compute(2) == expected));
        require_same_bits(compute, "scale");
      }
    }
  }
  Values y(1);
  REQUIRE_THROWS_AS(run([&](Stream& stream) { cpu::scale(stream, {.y = y.data(), .count = 1}); }),
                    CheckFailed);
}

TEST_CASE("mask_sign: keeps what has the other's sign and hides no NaN", "[kernels][elementwise]") {
  const float nan = std::nanf("");
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Values values = {1.0F, -1.0F, 0.0F, -0.0F, tiny, -tiny, 3e38F, nan};
  Values g;
  Values other;
  for (const float left : values) {
    for (const float right : values) {
      g.push_back(left);
      other.push_back(right);
    }
  }
  Values masked = g;
  run([&](Stream& stream) {
    cpu::mask_sign(stream,
                   {.g = masked.data(), .other = other.data(), .count = std::ssize(masked)});
  });
  for (std::size_t i = 0; i < g.size(); ++i) {
    CAPTURE(g[i], other[i]);
    if (std::isnan(g[i]) || std::isnan(other[i])) {
      REQUIRE(std::isnan(masked[i]));
    } else {
      const bool same = (g[i] > 0 && other[i] > 0) || (g[i] < 0 && other[i] < 0);
      REQUIRE(masked[i] == (same ? g[i] : 0.0F));
    }
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

TEST_CASE("count_nonzero: counts all but zeros of either sign, the smallest numbers and NaN too",
          "[kernels][elementwise]") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const int threads : {1, 2, 3}) {
    Values x(50'003, 0.0F);
    x[1] = -0.0F;
    x[0] = tiny;
    x[10] = -tiny;
    x[30] = 3e38F;
    x[20'000] = std::nanf("");
    x[50'002] = -std::numeric_limits<float>::infinity();
    std::int64_t nonzero = -1;
    run(
        [&](Stream& stream) {
          cpu::count_nonzero(stream, {.x = x.data(), .count = std::ssize(x), .nonzero = &nonzero});
        },
        threads);
    REQUIRE(nonzero == 5);
    run([&](Stream& stream) {
      cpu::count_nonzero(stream, {.x = x.data(), .count = 0, .nonzero = &nonzero});
    });
    REQUIRE(nonzero == 0);
  }
}

}  // namespace
}  // namespace train::kernels::testing::elementwise_test
