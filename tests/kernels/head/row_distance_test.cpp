// Distances of hidden states: against the definition in double and its finite differences.

#include "kernels/head/row_distance.hpp"

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::row_distance_test {
namespace {

struct Case {
  std::int64_t rows = 0, cols = 0;
  bool weighted = false;

  [[nodiscard]] Values x() const { return random_values(rows * cols, 1); }
  /// Of row 2, if there is one, what x has.
  [[nodiscard]] Values reference() const {
    Values values = random_values(rows * cols, 2);
    const Values same = x();
    for (std::int64_t i = 2 * cols; i < 3 * cols && rows > 2; ++i) {
      values[at(i)] = same[at(i)];
    }
    return values;
  }
  [[nodiscard]] std::vector<std::int32_t> targets() const {
    std::vector<std::int32_t> targets(at(rows), 5);
    for (std::int64_t row = 1; row < rows; row += 3) {
      targets[at(row)] = -1;
    }
    return targets;
  }
  [[nodiscard]] Values row_weights() const { return random_values(weighted ? rows : 0, 4, 2.0F); }
};

constexpr float kLossScale = 0.5F;
constexpr double kShare = 0.25;

struct Results {
  LossSums sums;
  Values gradient;
};

Results compute(const Case& t, bool add = false, int threads = 2) {
  Results r{.sums = {.cross_entropy = 3.0, .z_squared = 7.0}, .gradient = t.reference()};
  const Values x = t.x();
  const auto targets = t.targets();
  const Values row_weights = t.row_weights();
  Exact row_terms(at(t.rows));
  run(
      [&](Stream& stream) {
        cpu::row_distance(stream, {.x = x.data(),
                                   .reference = r.gradient.data(),
                                   .targets = targets.data(),
                                   .row_weights = t.weighted ? row_weights.data() : nullptr,
                                   .sums = &r.sums,
                                   .row_terms = row_terms.data(),
                                   .rows = t.rows,
                                   .cols = t.cols,
                                   .loss_scale = kLossScale,
                                   .share = kShare,
                                   .add = add});
      },
      threads);
  return r;
}

double weight_of(const Case& t, std::int64_t row) {
  return t.weighted ? static_cast<double>(t.row_weights()[at(row)]) : 1.0;
}

double loss_of(const Case& t, const Exact& x) {
  const Values reference = t.reference();
  double sum = 0.0;
  for (std::int64_t row = 0; row < t.rows; ++row) {
    double squares = 0.0;
    for (std::int64_t i = row * t.cols; i < (row + 1) * t.cols; ++i) {
      squares += std::pow(x[at(i)] - static_cast<double>(reference[at(i)]), 2);
    }
    sum += t.targets()[at(row)] >= 0 ? weight_of(t, row) * std::sqrt(squares) : 0.0;
  }
  return sum;
}

constexpr Case cases[] = {{.rows = 1, .cols = 1},
                          {.rows = 5, .cols = 7},
                          {.rows = 4, .cols = 16, .weighted = true},
                          {.rows = 3, .cols = 67, .weighted = true},
                          {.rows = 9, .cols = 33}};

TEST_CASE("row_distance: losses are the definition's, gradients those of finite differences",
          "[kernels][row_distance]") {
  for (const Case& t : cases) {
    CAPTURE(t.rows, t.cols);
    const Results found = compute(t);
    const double loss = loss_of(t, exact(t.x()));
    CHECK(found.sums.cross_entropy == Approx(kShare * loss).epsilon(1e-6));
    Exact expected = finite_differences(exact(t.x()), [&](const Exact& x) {
      return static_cast<double>(kLossScale) * loss_of(t, x);
    });
    for (std::int64_t i = 2 * t.cols; i < 3 * t.cols && t.rows > 2; ++i) {
      CHECK(found.gradient[at(i)] == 0.0F);  // Equal rows: no slope is the right one but this.
      expected[at(i)] = 0.0;
    }
    require_near(found.gradient, expected, 1e-6, "gradient of row_distance");
    require_same_bits([&](int threads) { return compute(t, false, threads).gradient; },
                      "row_distance");
  }
}

TEST_CASE("row_distance: counts rows with a target; adds where it is told to",
          "[kernels][row_distance]") {
  const Case t{.rows = 5, .cols = 4, .weighted = true};
  const LossSums sums = compute(t).sums;
  const Values weights = t.row_weights();
  CHECK(sums.targets == 3.0);
  CHECK(sums.weights == static_cast<double>(weights[0]) + static_cast<double>(weights[2]) +
                            static_cast<double>(weights[3]));
  CHECK(sums.z_squared == 0.0);
  CHECK(sums.correct == 0.0);
  const LossSums added = compute(t, /*add=*/true).sums;
  CHECK(added.cross_entropy == sums.cross_entropy + 3.0);
  CHECK(added.targets == 3.0);
  CHECK(compute({.rows = 0, .cols = 4}).sums.cross_entropy == 0.0);
}

TEST_CASE("row_distance: NaN comes through; differences below all floats' squares have a direction",
          "[kernels][row_distance]") {
  const std::vector<std::int32_t> targets = {0, 0};
  Values x = {NAN, 1.0F, 3e-30F, 0.0F};
  Values reference = {0.0F, 1.0F, 0.0F, -4e-30F};
  LossSums sums;
  Exact row_terms(2);
  run([&](Stream& stream) {
    cpu::row_distance(stream, {.x = x.data(),
                               .reference = reference.data(),
                               .targets = targets.data(),
                               .sums = &sums,
                               .row_terms = row_terms.data(),
                               .rows = 2,
                               .cols = 2});
  });
  CHECK(std::isnan(sums.cross_entropy));
  CHECK(std::isnan(reference[0]));
  CHECK(reference[2] == Approx(0.6F));
  CHECK(reference[3] == Approx(0.8F));
  CHECK_THROWS_AS(run([](Stream& stream) { cpu::row_distance(stream, {.rows = 1, .cols = 1}); }),
                  CheckFailed);
}

}  // namespace
}  // namespace train::kernels::testing::row_distance_test
