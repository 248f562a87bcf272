#include <limits>

#include "kernels/activation/clamp.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::clamp_test {
namespace {

constexpr float kBound = 0.75F;

/// The values around both bounds, again and again, and NaN.
Values around_bounds(std::int64_t count) {
  const Values around = {std::nextafter(kBound, 0.0F),
                         kBound,
                         std::nextafter(kBound, 1.0F),
                         -std::nextafter(kBound, 0.0F),
                         -kBound,
                         -std::nextafter(kBound, 1.0F),
                         0.0F,
                         -0.0F,
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(around[static_cast<std::size_t>(i) % around.size()]);
  }
  return values;
}

}  // namespace

TEST_CASE("clamp: values and gradients as torch.clamp has them, at the bounds, too",
          "[kernels][clamp]") {
  constexpr std::int64_t rows = 3;
  const auto cols = GENERATE(as<std::int64_t>(), 1, 5, 11, 70);
  const std::int64_t stride = cols + 2;
  const Values x = around_bounds(rows * stride);
  const Values dy = random_values(rows * stride, 2);
  const auto both = [&](int threads) {
    Values y = untouched_values(rows * stride);
    Values dx = untouched_values(rows * stride);
    run(
        [&](Stream& stream) {
          cpu::clamp_forward(stream, {.x = x.data(),
                                      .y = y.data(),
                                      .bound = kBound,
                                      .rows = rows,
                                      .cols = cols,
                                      .x_stride = stride,
                                      .y_stride = stride});
          cpu::clamp_backward(stream, {.x = x.data(),
                                       .dy = dy.data(),
                                       .dx = dx.data(),
                                       .bound = kBound,
                                       .rows = rows,
                                       .cols = cols,
                                       .x_stride = stride,
                                       .dy_stride = stride});
        },
        threads);
    return std::pair(y, dx);
  };
  const auto [y, dx] = both(1);
  const Values untouched = untouched_values(rows * stride);
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const float value = x[at(i)];
    CAPTURE(i, value);
    if (i % stride >= cols) {
      CHECK(y[at(i)] == untouched[at(i)]);
      CHECK(dx[at(i)] == untouched[at(i)]);
      continue;
    }
    if (std::isnan(value)) {
      CHECK(std::isnan(y[at(i)]));
      CHECK(dx[at(i)] == 0.0F);
      continue;
    }
    CHECK(y[at(i)] == std::clamp(value, -kBound, kBound));
    CHECK(std::signbit(y[at(i)]) == std::signbit(value));
    CHECK(dx[at(i)] == (std::abs(value) < kBound ? dy[at(i)] : 0.0F));
  }
  require_same_bits(
      [&](int threads) {
        const auto [again, gradient] = both(threads);
        return joined({gradient});
      },
      "clamp_backward");
}

}  // namespace train::kernels::testing::clamp_test
