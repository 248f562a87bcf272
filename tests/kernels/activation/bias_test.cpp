#include "kernels/activation/bias.hpp"

#include <string>
#include <vector>

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::bias_test {
namespace {

struct BiasCase {
  std::int64_t rows, cols, stride, period;
  [[nodiscard]] std::string name() const {
    return std::to_string(rows) + " rows of " + std::to_string(cols) + ", period " +
           std::to_string(period);
  }
};

constexpr BiasCase bias_cases[] = {{1, 1, 1, 1},     {5, 7, 9, 1},     {64, 16, 16, 1},
                                   {65, 33, 40, 1},  {300, 48, 48, 1}, {12, 5, 5, 4},
                                   {390, 17, 20, 3}, {6, 8, 8, 6}};

Values sums_of(const BiasCase& t, const Values& dy, int threads) {
  Values dbias = untouched_values(t.period * t.cols);
  run(
      [&](Stream& stream) {
        cpu::bias_gradient(stream, {.dy = dy.data(),
                                    .dbias = dbias.data(),
                                    .rows = t.rows,
                                    .cols = t.cols,
                                    .stride = t.stride,
                                    .period = t.period});
      },
      threads);
  return dbias;
}

}  // namespace

TEST_CASE("bias: added to every row, by its place in the period", "[kernels][bias]") {
  for (const BiasCase& t : bias_cases) {
    const Values before = random_values(t.rows * t.stride, 1);
    const Values bias = random_values(t.period * t.cols, 2);
    Values y = before;
    run([&](Stream& stream) {
      cpu::bias_add(stream, {.y = y.data(),
                             .bias = bias.data(),
                             .rows = t.rows,
                             .cols = t.cols,
                             .stride = t.stride,
                             .period = t.period});
    });
    for (std::int64_t i = 0; i < t.rows * t.stride; ++i) {
      const std::int64_t column = i % t.stride;
      const std::int64_t entry = i / t.stride % t.period * t.cols + column;
      REQUIRE(y[at(i)] == (column < t.cols ? before[at(i)] + bias[at(entry)] : before[at(i)]));
    }
  }
}

TEST_CASE("bias: its gradient is the sum over the rows, whatever the threads", "[kernels][bias]") {
  for (const BiasCase& t : bias_cases) {
    const Values dy = random_values(t.rows * t.stride, 3);
    Exact expected(at(t.period * t.cols));
    for (std::int64_t row = 0; row < t.rows; ++row) {
      for (std::int64_t c = 0; c < t.cols; ++c) {
        expected[at(row % t.period * t.cols + c)] += dy[at(row * t.stride + c)];
      }
    }
    require_near(sums_of(t, dy, 2), expected, 1e-5, t.name());
    require_same_bits([&](int threads) { return sums_of(t, dy, threads); }, t.name());
  }
}

TEST_CASE("bias: rows take the entries of their positions, and give them their gradients",
          "[kernels][bias]") {
  constexpr std::int64_t cols = 70;
  constexpr std::int64_t period = 5;
  const std::vector<std::int32_t> positions = {0, 1, 2, 0, 4, 4, 1};
  const auto rows = static_cast<std::int64_t>(positions.size());
  const Values before = random_values(rows * cols, 1);
  const Values bias = random_values(period * cols, 2);
  const auto gradient = [&](int threads) {
    Values dbias = untouched_values(period * cols);
    run(
        [&](Stream& stream) {
          cpu::bias_gradient(stream, {.dy = before.data(),
                                      .dbias = dbias.data(),
                                      .positions = positions.data(),
                                      .rows = rows,
                                      .cols = cols,
                                      .stride = cols,
                                      .period = period});
        },
        threads);
    return dbias;
  };
  Values y = before;
  run([&](Stream& stream) {
    cpu::bias_add(stream, {.y = y.data(),
                           .bias = bias.data(),
                           .positions = positions.data(),
                           .rows = rows,
                           .cols = cols,
                           .stride = cols,
                           .period = period});
  });
  Exact expected(at(period * cols));
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const std::int64_t entry = positions[at(i / cols)] * cols + i % cols;
    REQUIRE(y[at(i)] == before[at(i)] + bias[at(entry)]);
    expected[at(entry)] += static_cast<double>(before[at(i)]);
  }
  require_near(gradient(2), expected, 1e-6, "gradient of positions");
  require_same_bits(gradient, "gradient of positions");
}

TEST_CASE("bias: a position that has no entry is refused", "[kernels][bias]") {
  for (const std::int32_t position : {-1, 2}) {
    Values y = zeros(3);
    const Values bias = zeros(6);
    REQUIRE_THROWS_AS(run([&](Stream& stream) {
                        cpu::bias_add(stream, {.y = y.data(),
                                               .bias = bias.data(),
                                               .positions = &position,
                                               .rows = 1,
                                               .cols = 3,
                                               .stride = 3,
                                               .period = 2});
                      }),
                      CheckFailed);
  }
}

TEST_CASE("bias: a wrong call is refused", "[kernels][bias]") {
  Values y = zeros(8);
  run([&](Stream& stream) {
    CHECK_THROWS_AS(cpu::bias_add(stream, {.y = y.data(), .rows = 1, .cols = 8, .stride = 8}),
                    CheckFailed);
    CHECK_THROWS_AS(
        cpu::bias_add(stream, {.y = y.data(), .bias = y.data(), .rows = 1, .cols = 8, .stride = 4}),
        CheckFailed);
  });
}

}  // namespace train::kernels::testing::bias_test
