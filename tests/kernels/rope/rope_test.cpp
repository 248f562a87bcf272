#include "kernels/rope/rope.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::rope_test {
namespace {

struct Case {
  std::int64_t sequences, seq_len, heads, head_dim;

  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
  /// Heads inside a fused row with something else beside them.
  [[nodiscard]] RowLayout layout() const { return {heads * head_dim * 2 + 3, head_dim + 1}; }
  [[nodiscard]] std::int64_t size() const { return tokens() * layout().outer_stride; }
};

struct Table {
  Values cos, sin;
};

Table table_of(const Case& t, int threads) {
  Table table{.cos = zeros(t.seq_len * t.head_dim / 2), .sin = zeros(t.seq_len * t.head_dim / 2)};
  run(
      [&](Stream& stream) {
        cpu::rope_table(stream, {.cos = table.cos.data(),
                                 .sin = table.sin.data(),
                                 .seq_len = t.seq_len,
                                 .head_dim = t.head_dim,
                                 .theta = 10000.0});
      },
      threads);
  return table;
}

Values rotate(const Case& t, Values x, bool inverse, int threads,
              const std::int32_t* positions = nullptr) {
  const Table table = table_of(t, threads);
  run(
      [&](Stream& stream) {
        cpu::rope_apply(stream, {.x = x.data(),
                                 .cos = table.cos.data(),
                                 .sin = table.sin.data(),
                                 .positions = positions,
                                 .tokens = t.tokens(),
                                 .seq_len = t.seq_len,
                                 .heads = t.heads,
                                 .head_dim = t.head_dim,
                                 .layout = t.layout(),
                                 .inverse = inverse});
      },
      threads);
  return x;
}

constexpr Case cases[] = {{1, 1, 1, 2}, {2, 5, 3, 6}, {1, 130, 2, 64}, {3, 64, 1, 34}};

TEST_CASE("rope: a token at a given position is turned as the token there", "[kernels][rope]") {
  const Case t{1, 40, 2, 10};
  const std::int64_t width = t.layout().outer_stride;
  const Values row = random_values(width, 5);
  Values same;
  std::vector<std::int32_t> positions;
  for (std::int64_t token = 0; token < t.tokens(); ++token) {
    same.insert(same.end(), row.begin(), row.end());
    positions.push_back(static_cast<std::int32_t>((token * 7) % t.seq_len));
  }
  const Values in_order = rotate(t, same, false, 2);
  const Values placed = rotate(t, same, false, 2, positions.data());
  for (std::int64_t token = 0; token < t.tokens(); ++token) {
    const auto expected = in_order.begin() + positions[at(token)] * width;
    REQUIRE(std::equal(expected, expected + width, placed.begin() + token * width));
  }
  positions[3] = 40;
  REQUIRE_THROWS_AS(rotate(t, same, false, 2, positions.data()), CheckFailed);
}

TEST_CASE("rope: rotates pairs by position times frequency", "[kernels][rope]") {
  for (const Case& t : cases) {
    const Values x = random_values(t.size(), 1);
    Exact expected = exact(x);
    for (std::int64_t token = 0; token < t.tokens(); ++token) {
      for (std::int64_t head = 0; head < t.heads; ++head) {
        for (std::int64_t i = 0; i < t.head_dim / 2; ++i) {
          const double frequency =
              std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(t.head_dim));
          const double angle = static_cast<double>(token % t.seq_len) * frequency;
          const std::size_t first =
              at(token * t.layout().outer_stride + head * t.layout().inner_stride + 2 * i);
          const double x0 = x[first];
          const double x1 = x[first + 1];
          expected[first] = x0 * std::cos(angle) - x1 * std::sin(angle);
          expected[first + 1] = x0 * std::sin(angle) + x1 * std::cos(angle);
        }
      }
    }
    // Gaps between heads and rows are compared too. Three roundings of values below 2.
    require_near(rotate(t, x, false, 2), expected, 3e-7, "rope");
  }
}

TEST_CASE("rope: the inverse undoes it and is its gradient", "[kernels][rope]") {
  for (const Case& t : cases) {
    const Values x = random_values(t.size(), 1);
    const Values dy = random_values(t.size(), 2);
    require_near(rotate(t, rotate(t, x, false, 2), true, 2), exact(x), 5e-7, "round trip");
    // <dy, R x> == <R^T dy, x>: the inverse of a rotation is its transpose.
    const double left = dot(exact(dy), rotate(t, x, false, 2));
    const double right = dot(exact(rotate(t, dy, true, 2)), x);
    REQUIRE(left == Approx(right).margin(1e-6 * std::sqrt(static_cast<double>(t.size()))));
  }
}

TEST_CASE("rope: the bits do not depend on the threads", "[kernels][rope]") {
  for (const Case& t : cases) {
    const Values x = random_values(t.size(), 1);
    require_same_bits([&](int threads) { return rotate(t, x, false, threads); }, "rope");
  }
}

TEST_CASE("rope: an odd head is refused", "[kernels][rope]") {
  const auto stream = make_inline_stream(1);
  REQUIRE_THROWS_AS(
      cpu::rope_apply(*stream, {.seq_len = 1, .heads = 1, .head_dim = 7, .layout = {}}),
      CheckFailed);
  REQUIRE_THROWS_AS(cpu::rope_table(*stream, {.seq_len = 1, .head_dim = 7}), CheckFailed);
}

TEST_CASE("rope: halves of a part of a head, by given frequencies", "[kernels][rope]") {
  const std::int64_t seq_len = 9;
  const std::int64_t heads = 2;
  const std::int64_t dim = 12;
  const std::int64_t rotary = 8;
  RopeFrequencies frequencies{.given = true, .values = {0.5F, 0.25F, 0.125F, 0.01F}};
  Values cos = zeros(seq_len * rotary / 2);
  Values sin = cos;
  const Values before = random_values(2 * seq_len * heads * dim, 5);
  Values x = before;
  const auto apply = [&](Stream& stream, bool inverse) {
    cpu::rope_apply(stream, {.x = x.data(),
                             .cos = cos.data(),
                             .sin = sin.data(),
                             .tokens = 2 * seq_len,
                             .seq_len = seq_len,
                             .heads = heads,
                             .head_dim = rotary,
                             .layout = {heads * dim, dim},
                             .pairing = RopePairing::half,
                             .inverse = inverse});
  };
  run([&](Stream& stream) {
    cpu::rope_table(stream, {.cos = cos.data(),
                             .sin = sin.data(),
                             .seq_len = seq_len,
                             .head_dim = rotary,
                             .frequencies = frequencies,
                             .factor = 1.5F});
    apply(stream, false);
  });
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const std::int64_t c = i % dim;
    const std::int64_t pair = c % (rotary / 2);
    if (c >= rotary) {
      REQUIRE(x[at(i)] == before[at(i)]);
      continue;
    }
    const double angle = static_cast<double>(i / (heads * dim) % seq_len) *
                         static_cast<double>(frequencies.values[at(pair)]);
    const auto x0 = static_cast<double>(before[at(i - c + pair)]);
    const auto x1 = static_cast<double>(before[at(i - c + pair + rotary / 2)]);
    const double wanted = c < rotary / 2 ? x0 * std::cos(angle) - x1 * std::sin(angle)
                                         : x0 * std::sin(angle) + x1 * std::cos(angle);
    REQUIRE(static_cast<double>(x[at(i)]) == Approx(1.5 * wanted).margin(1e-6));
  }
  // Back again: the square of the factor is left.
  run([&](Stream& stream) { apply(stream, true); });
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const float factor = i % dim < rotary ? 2.25F : 1.0F;
    REQUIRE(x[at(i)] == Approx(factor * before[at(i)]).margin(2e-6));
  }
}

}  // namespace
}  // namespace train::kernels::testing::rope_test
