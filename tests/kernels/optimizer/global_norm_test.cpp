#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/update_guard.hpp"

#include <limits>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::global_norm_test {
namespace {

Exact row_sums(const Values& x, std::int64_t rows, std::int64_t cols, int threads) {
  Exact sums(at(rows));
  run(
      [&](Stream& stream) {
        cpu::row_square_sums(
            stream,
            {.tensors = {{.x = x.data(), .row_sums = sums.data(), .rows = rows, .cols = cols}}});
      },
      threads);
  return sums;
}

double tree_sum(const Exact& values) {
  double sum = -1.0;
  run([&](Stream& stream) {
    cpu::tree_sum(stream,
                  {.sums = {{.values = values.data(), .out = &sum, .count = std::ssize(values)}}});
  });
  return sum;
}

TEST_CASE("row_square_sums: right, and the same however rows are sharded",
          "[kernels][global_norm]") {
  for (const std::int64_t cols : {1, 7, 64, 257}) {
    constexpr std::int64_t rows = 130;
    const Values x = random_values(rows * cols, 1);
    const Exact sums = row_sums(x, rows, cols, 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      double expected = 0.0;
      for (std::int64_t c = 0; c < cols; ++c) {
        expected += std::pow(static_cast<double>(x[at(row * cols + c)]), 2);
      }
      REQUIRE(sums[at(row)] == Approx(expected).epsilon(1e-13));  // Double rounding.
    }
    REQUIRE(row_sums(x, rows, cols, 2) == sums);
    REQUIRE(row_sums(x, rows, cols, 3) == sums);
    const Values shard(x.begin() + 77 * cols, x.end());
    REQUIRE(row_sums(shard, rows - 77, cols, 2) == Exact(sums.begin() + 77, sums.end()));
  }
}

TEST_CASE("tree_sum: follows the canonical tree", "[kernels][global_norm]") {
  REQUIRE(tree_sum({}) == 0.0);
  REQUIRE(tree_sum({3.5}) == 3.5);
  const double big = 1e16;  // 1 is lost beside it, 2 is not: every order has its own sum.
  REQUIRE(tree_sum({big, 1.0, 1.0}) == (big + 1.0) + 1.0);
  REQUIRE(tree_sum({big, 1.0, 1.0, 1.0}) == (big + 1.0) + (1.0 + 1.0));
  REQUIRE(tree_sum({big, 1.0, 1.0, 1.0, 1.0}) == ((big + 1.0) + (1.0 + 1.0)) + 1.0);
  REQUIRE(tree_sum({1.0, 1.0, 1.0, 1.0, big, 1.0, 1.0}) ==
          ((1.0 + 1.0) + (1.0 + 1.0)) + ((big + 1.0) + 1.0));
  Exact many(1001);
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i] = static_cast<double>(i);
  }
  REQUIRE(tree_sum(many) == 500'500.0);
}

UpdateGuard gate_of(double squared_norm, double cross_entropy, double z_squared, float clip,
                    UpdateGuard guard = {}) {
  run([&](Stream& stream) {
    cpu::clip_scale(stream, {.squared_norm = &squared_norm,
                             .cross_entropy = &cross_entropy,
                             .z_squared = &z_squared,
                             .guard = &guard,
                             .loss_scale = 0.5,
                             .z_scale = 0.25,
                             .clip = clip});
  });
  return guard;
}

TEST_CASE("clip_scale: scales down to the clip, never up", "[kernels][global_norm]") {
  UpdateGuard guard = gate_of(25.0, 6.0, 8.0, 1.0F);
  REQUIRE(guard.grad_norm == 5.0F);
  REQUIRE(guard.grad_scale == Approx(1.0 / (5.0 + 1e-6)).epsilon(1e-7));
  REQUIRE(guard.loss == 5.0);
  REQUIRE(guard.nonfinite == 0);
  REQUIRE(gate_of(0.25, 1.0, 0.0, 1.0F).grad_scale == 1.0F);
  REQUIRE(gate_of(25.0, 1.0, 0.0, 0.0F).grad_scale == 1.0F);
  REQUIRE(gate_of(0.0, 1.0, 0.0, 1.0F).grad_scale == 1.0F);
}

TEST_CASE("clip_scale: a loss or norm that is not finite prevents the update, and that stays",
          "[kernels][global_norm]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  REQUIRE(gate_of(nan, 1.0, 0.0, 1.0F).nonfinite == 1);
  REQUIRE(gate_of(infinity, 1.0, 0.0, 1.0F).nonfinite == 1);
  REQUIRE(gate_of(1.0, nan, 0.0, 1.0F).nonfinite == 1);
  REQUIRE(gate_of(1.0, 1.0, infinity, 1.0F).nonfinite == 1);
  REQUIRE(gate_of(1.0, 1.0, 0.0, 1.0F, {.nonfinite = 1}).nonfinite == 1);
}

}  // namespace
}  // namespace train::kernels::testing::global_norm_test
