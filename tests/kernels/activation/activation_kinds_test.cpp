#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/activation/activation.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/support/harness/fixture_file.hpp"

namespace train::kernels::testing::activation_kinds_test {
namespace {

double kind_value(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu:
      return x / (1.0 + std::exp(-x));
    case ActivationKind::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::gelu_tanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ActivationKind::clamped_swiglu:
    case ActivationKind::relu:
      break;
  }
  return std::max(x, 0.0);
}

double kind_slope(ActivationKind kind, double x) {
  constexpr double h = 1e-5;
  return (kind_value(kind, x + h) - kind_value(kind, x - h)) / (2.0 * h);
}

struct KindCase {
  ActivationKind kind;
  bool gated;
  std::int64_t rows, cols;
  [[nodiscard]] std::int64_t stride() const { return gated ? 2 * cols : cols + 3; }
  [[nodiscard]] Values x() const { return random_values(rows * stride(), 1, 6.0F); }
  [[nodiscard]] Values dy() const { return random_values(rows * cols, 2); }
};

struct KindResults {
  Values y, again, dx;
};

KindResults run_kind(const KindCase& t, int threads) {
  const Values x = t.x();
  const Values dy = t.dy();
  KindResults r{.y = zeros(t.rows * t.cols),
                .again = zeros(t.rows * t.cols),
                .dx = untouched_values(t.rows * t.stride())};
  run(
      [&](Stream& stream) {
        cpu::activation_forward(stream, {.kind = t.kind,
                                         .x = x.data(),
                                         .up = t.gated ? x.data() + t.cols : nullptr,
                                         .y = r.y.data(),
                                         .rows = t.rows,
                                         .cols = t.cols,
                                         .x_stride = t.stride(),
                                         .y_stride = t.cols});
        cpu::activation_backward(stream, {.kind = t.kind,
                                          .x = x.data(),
                                          .up = t.gated ? x.data() + t.cols : nullptr,
                                          .dy = dy.data(),
                                          .dx = r.dx.data(),
                                          .dup = t.gated ? r.dx.data() + t.cols : nullptr,
                                          .y = r.again.data(),
                                          .rows = t.rows,
                                          .cols = t.cols,
                                          .x_stride = t.stride(),
                                          .dy_stride = t.cols,
                                          .dx_stride = t.stride()});
      },
      threads);
  return r;
}

}  // namespace

TEST_CASE("activation kinds: values and slopes agree with double, gated and plain",
          "[kernels][activation]") {
  const auto kind = GENERATE(ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                             ActivationKind::relu);
  for (const bool gated : {false, true}) {
    const KindCase t{kind, gated, 9, 37};
    CAPTURE(static_cast<int>(kind), gated);
    const KindResults r = run_kind(t, 2);
    const Values x = t.x();
    const Values dy = t.dy();
    for (std::int64_t i = 0; i < t.rows * t.cols; ++i) {
      const std::size_t from = at(i / t.cols * t.stride() + i % t.cols);
      const double up = gated ? static_cast<double>(x[from + at(t.cols)]) : 1.0;
      const double value = kind_value(kind, static_cast<double>(x[from]));
      const double slope = kind_slope(kind, static_cast<double>(x[from]));
      const auto gradient = static_cast<double>(dy[at(i)]);
      REQUIRE(static_cast<double>(r.y[at(i)]) == Approx(value * up).margin(4e-6));
      REQUIRE(r.again[at(i)] == r.y[at(i)]);
      REQUIRE(static_cast<double>(r.dx[from]) == Approx(gradient * up * slope).margin(6e-6));
      if (gated) {
        REQUIRE(static_cast<double>(r.dx[from + at(t.cols)]) ==
                Approx(gradient * value).margin(4e-6));
      }
    }
    require_same_bits(
        [&](int threads) {
          const KindResults same = run_kind(t, threads);
          return joined({same.y, same.dx});
        },
        "activation kinds");
  }
}

TEST_CASE("activation kinds: NaN comes through", "[kernels][activation]") {
  const auto kind = GENERATE(ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                             ActivationKind::relu);
  const Values x{std::numeric_limits<float>::quiet_NaN(), 1.0F};
  Values y = zeros(2);
  run([&](Stream& stream) {
    cpu::activation_forward(stream, {.kind = kind,
                                     .x = x.data(),
                                     .y = y.data(),
                                     .rows = 1,
                                     .cols = 2,
                                     .x_stride = 2,
                                     .y_stride = 2});
  });
  CHECK(std::isnan(y[0]));
  CHECK_FALSE(std::isnan(y[1]));
}

TEST_CASE("activation kinds: the clamped one is that of transformers, at its limits too",
          "[kernels][activation][reference]") {
  for (const auto& c : test::read_fixture("clamped_swiglu.json")) {
    const auto gate = c.at("gate").get<Values>();
    const auto up = c.at("up").get<Values>();
    const auto dy = c.at("dy").get<Values>();
    const std::int64_t count = std::ssize(gate);
    Values y = untouched_values(count);
    Values again = y;
    Values dgate = y;
    Values dup = y;
    run([&](Stream& stream) {
      cpu::activation_forward(stream, {.kind = ActivationKind::clamped_swiglu,
                                       .x = gate.data(),
                                       .up = up.data(),
                                       .y = y.data(),
                                       .rows = 1,
                                       .cols = count,
                                       .x_stride = count,
                                       .y_stride = count,
                                       .alpha = c.at("alpha"),
                                       .limit = c.at("limit")});
      cpu::activation_backward(stream, {.kind = ActivationKind::clamped_swiglu,
                                        .x = gate.data(),
                                        .up = up.data(),
                                        .dy = dy.data(),
                                        .dx = dgate.data(),
                                        .dup = dup.data(),
                                        .y = again.data(),
                                        .rows = 1,
                                        .cols = count,
                                        .x_stride = count,
                                        .dy_stride = count,
                                        .dx_stride = count,
                                        .alpha = c.at("alpha"),
                                        .limit = c.at("limit")});
    });
    CHECK(again == y);
    require_near(y, c.at("y").get<Exact>(), 1e-6, "y");
    require_near(dgate, c.at("dgate").get<Exact>(), 2e-6, "dgate");
    require_near(dup, c.at("dup").get<Exact>(), 1e-6, "dup");
  }
}

TEST_CASE("activation kinds: the clamped one passes NaN on, in both passes",
          "[kernels][activation]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Values x{nan, 1.0F, nan, 1.0F};
  const Values up{1.0F, nan, 100.0F, 2.0F};
  const Values dy{1.0F, 1.0F, 1.0F, 1.0F};
  Values y = zeros(4);
  Values dx = y;
  Values dup = y;
  run([&](Stream& stream) {
    cpu::activation_backward(stream, {.kind = ActivationKind::clamped_swiglu,
                                      .x = x.data(),
                                      .up = up.data(),
                                      .dy = dy.data(),
                                      .dx = dx.data(),
                                      .dup = dup.data(),
                                      .y = y.data(),
                                      .rows = 1,
                                      .cols = 4,
                                      .x_stride = 4,
                                      .dy_stride = 4,
                                      .dx_stride = 4});
  });
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::isnan(y[i]));
    CHECK(std::isnan(dx[i]));
  }
  CHECK_FALSE(std::isnan(y[3]));
}

TEST_CASE("activation kinds: the clamped one is refused without a factor or a limit",
          "[kernels][activation]") {
  const auto stream = make_inline_stream(1);
  Values x(4);
  ActivationForwardParams p{.kind = ActivationKind::clamped_swiglu,
                            .x = x.data(),
                            .y = x.data(),
                            .rows = 1,
                            .cols = 4,
                            .x_stride = 4,
                            .y_stride = 4};
  CHECK_THROWS_WITH(cpu::activation_forward(*stream, p), Catch::Contains("has an up"));
  p.up = x.data();
  cpu::activation_forward(*stream, p);
  p.limit = 0.0F;
  CHECK_THROWS_WITH(cpu::activation_forward(*stream, p), Catch::Contains("limit=0"));
}

}  // namespace train::kernels::testing::activation_kinds_test
