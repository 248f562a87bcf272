#include "kernels/activation/activation.hpp"

#include <bit>
#include <limits>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::activation_test {
namespace {

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
         x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::acos(-1.0));
}
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double slope_of(double (*function)(double), double x) {
  constexpr double h = 1e-5;
  return (function(x + h) - function(x - h)) / (2.0 * h);
}

constexpr std::int64_t counts[] = {1, 7, 64, 257, 40'001};

Values run_gelu(const Values& x, int threads = 2) {
  Values y = zeros(static_cast<std::int64_t>(x.size()));
  run(
      [&](Stream& stream) {
        cpu::gelu_forward(stream, {.x = x.data(), .y = y.data(), .count = std::ssize(x)});
      },
      threads);
  return y;
}

/// What the backward pass says the forward pass gave.
Values gelu_again(const Values& x) {
  Values dx = zeros(std::ssize(x));
  Values y = zeros(std::ssize(x));
  run([&](Stream& stream) {
    cpu::gelu_backward(
        stream,
        {.x = x.data(), .dy = dx.data(), .dx = dx.data(), .y = y.data(), .count = std::ssize(x)});
  });
  return y;
}

Values run_gelu_backward(const Values& x, const Values& dy, int threads = 2) {
  Values dx = dy;  // In place, as the engine calls it.
  run(
      [&](Stream& stream) {
        cpu::gelu_backward(
            stream, {.x = x.data(), .dy = dx.data(), .dx = dx.data(), .count = std::ssize(x)});
      },
      threads);
  return dx;
}

// An ulp or two of float arithmetic around the exact function.
constexpr double tolerance = 4e-7;

/// x with `far` in place of every `every`th element.
Values with_far(Values x, std::size_t every, float far) {
  for (std::size_t i = every / 2; i < x.size(); i += every) {
    x[i] = far;
  }
  return x;
}

/// Every 4099th float below 16, with both signs.
Values floats_of_all_sizes() {
  constexpr std::uint32_t step = 4099;
  Values x;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(16.0F); bits += step) {
    x.insert(x.end(), {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)});
  }
  return x;
}

/// From `value`'s size to the next float.
double float_spacing(double value) {
  constexpr int mantissa_bits = 24;
  constexpr int least_exponent = -149;
  int exponent = 0;
  (void)std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - mantissa_bits, least_exponent));
}

// On the left Phi is e^(-x^2 / 2), but for a factor: rounding x^2 makes up to x^2 / 2 errors of it.
TEST_CASE("gelu: errors in units of the last place, down to the smallest floats",
          "[kernels][activation]") {
  constexpr double units = 5.0;
  const Values x = floats_of_all_sizes();
  const Values y = run_gelu(x);
  const Values slope = run_gelu_backward(x, Values(x.size(), 1.0F));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    const double allowed = at < 0.0 ? units + at * at / 2.0 : units;
    const double cdf = gelu(at) / at;
    const double largest_term = std::max(cdf, std::abs(gelu_slope(at) - cdf));
    const double error = std::abs(y[i] - gelu(at)) / float_spacing(gelu(at));
    const double slope_error = std::abs(slope[i] - gelu_slope(at)) / float_spacing(largest_term);
    if (!(error <= allowed) || (at != 0.0 && !(slope_error <= allowed))) {
      FAIL("at " << at << ": " << error << " and, of the slope, " << slope_error << " units");
    }
  }
}

/// That `activation` of x has the same bits with `far` here and there, where that is not.
void require_same_beside(const std::function<Values(const Values&)>& activation, float far) {
  constexpr std::size_t every = 8;  // One in each vector of AVX2.
  const Values x = random_values(4096, 3, 13.0F);
  const Values expected = activation(x);
  const Values y = activation(with_far(x, every, far));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % every != every / 2) {
      REQUIRE(std::bit_cast<std::uint32_t>(y[i]) == std::bit_cast<std::uint32_t>(expected[i]));
    }
  }
}

TEST_CASE("gelu: what lies beside an element does not change its bits", "[kernels][activation]") {
  for (const float far : {-13.25F, 14.0F, -14.5F, 1e30F, std::nanf("")}) {
    require_same_beside([](const Values& x) { return run_gelu(x); }, far);
  }
}

TEST_CASE("gelu: forward and backward agree with erf in double", "[kernels][activation]") {
  for (const std::int64_t count : counts) {
    const Values x = random_values(count, 1, 8.0F);
    const Values dy = random_values(count, 2);
    Exact y;
    Exact dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(gelu(x[i]));
      dx.push_back(static_cast<double>(dy[i]) * gelu_slope(x[i]));
    }
    require_near(run_gelu(x), y, tolerance, "gelu");
    require_near(run_gelu_backward(x, dy), dx, tolerance, "gelu backward");
    REQUIRE(gelu_again(x) == run_gelu(x));
  }
}

TEST_CASE("gelu: the derivative in the test is the slope of the function",
          "[kernels][activation]") {
  for (double x = -6.0; x < 6.0; x += 0.37) {
    REQUIRE(gelu_slope(x) == Approx(slope_of(gelu, x)).margin(1e-9));
  }
}

TEST_CASE("gelu: far tails, zeros and not-a-numbers", "[kernels][activation]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Values y = run_gelu({0.0F, 30.0F, -30.0F, 1e30F, -1e30F, infinity, std::nanf("")});
  REQUIRE(y[0] == 0.0F);
  REQUIRE(y[1] == 30.0F);
  REQUIRE(y[2] == 0.0F);
  REQUIRE(y[3] == 1e30F);
  REQUIRE(y[4] == 0.0F);
  REQUIRE(y[5] == infinity);
  REQUIRE(std::isnan(y[6]));
  // The left tail keeps its relative precision.
  REQUIRE(run_gelu({-4.0F})[0] == Approx(gelu(-4.0)).epsilon(3e-6));
}

struct SwigluGradients {
  Values dgate, dup, y;
};

SwigluGradients run_swiglu_backward(const Values& gate, const Values& up, const Values& dy,
                                    int threads = 2) {
  SwigluGradients g{.dgate = zeros(std::ssize(dy)), .dup = dy, .y = zeros(std::ssize(dy))};
  run(
      [&](Stream& stream) {
        cpu::swiglu_backward(stream, {.gate = gate.data(),
                                      .up = up.data(),
                                      .dy = g.dup.data(),
                                      .dgate = g.dgate.data(),
                                      .dup = g.dup.data(),
                                      .y = g.y.data(),
                                      .count = std::ssize(dy)});
      },
      threads);
  return g;
}

Values run_swiglu(const Values& gate, const Values& up, int threads = 2) {
  Values y = zeros(std::ssize(gate));
  run(
      [&](Stream& stream) {
        cpu::swiglu_forward(
            stream,
            {.gate = gate.data(), .up = up.data(), .y = y.data(), .count = std::ssize(gate)});
      },
      threads);
  return y;
}

// exp has other steps for vectors that hold a result below the normal numbers, or NaN.
TEST_CASE("swiglu: what lies beside an element does not change its bits", "[kernels][activation]") {
  for (const float far : {-87.5F, 88.0F, -110.0F, 1e30F, std::nanf("")}) {
    require_same_beside([](const Values& x) { return run_swiglu(x, Values(x.size(), 1.0F)); }, far);
  }
}

TEST_CASE("swiglu: forward and backward agree with a double reference", "[kernels][activation]") {
  for (const std::int64_t count : counts) {
    const Values gate = random_values(count, 1, 10.0F);
    const Values up = random_values(count, 2);
    const Values dy = random_values(count, 3);
    Exact y;
    Exact dgate;
    Exact dup;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      y.push_back(silu(g) * static_cast<double>(up[i]));
      dgate.push_back(static_cast<double>(dy[i]) * static_cast<double>(up[i]) * slope_of(silu, g));
      dup.push_back(static_cast<double>(dy[i]) * silu(g));
    }
    require_near(run_swiglu(gate, up), y, tolerance, "swiglu");
    const SwigluGradients gradients = run_swiglu_backward(gate, up, dy);
    require_near(gradients.dgate, dgate, tolerance, "dgate");
    require_near(gradients.dup, dup, tolerance, "dup");
    REQUIRE(gradients.y == run_swiglu(gate, up));
  }
  const Values extreme = run_swiglu({200.0F, -200.0F, std::nanf("")}, {1.0F, 1.0F, 1.0F});
  REQUIRE(extreme[0] == 200.0F);
  REQUIRE(std::abs(extreme[1]) < 1e-30F);
  REQUIRE(std::isnan(extreme[2]));
}

/// x, dy and dx are packed heads; the gate lies inside a wider fused row.
struct GateCase {
  std::int64_t tokens, heads, head_dim;

  [[nodiscard]] RowLayout packed() const { return {heads * head_dim, head_dim}; }
  [[nodiscard]] RowLayout fused() const { return {3 * heads * head_dim + 5, head_dim + 1}; }
  [[nodiscard]] std::int64_t packed_size() const { return tokens * heads * head_dim; }
  [[nodiscard]] std::int64_t fused_size() const { return tokens * fused().outer_stride; }
};

TEST_CASE("sigmoid gate: forward and backward on strided heads", "[kernels][activation]") {
  for (const GateCase t : {GateCase{1, 1, 1}, GateCase{5, 3, 7}, GateCase{64, 2, 64}}) {
    const Values x = random_values(t.packed_size(), 1);
    const Values gate = random_values(t.fused_size(), 2, 5.0F);
    const Values dy = random_values(t.packed_size(), 3);
    Exact y(x.size());
    Exact dx(x.size());
    Exact dgate(gate.size(), static_cast<double>(untouched));
    for (std::int64_t row = 0; row < t.tokens * t.heads; ++row) {
      for (std::int64_t c = 0; c < t.head_dim; ++c) {
        const std::size_t i = at(row * t.head_dim + c);
        const std::size_t j =
            at(row / t.heads * t.fused().outer_stride + row % t.heads * t.fused().inner_stride + c);
        y[i] = static_cast<double>(x[i]) * sigmoid(gate[j]);
        dx[i] = static_cast<double>(dy[i]) * sigmoid(gate[j]);
        dgate[j] =
            static_cast<double>(dy[i]) * static_cast<double>(x[i]) * slope_of(sigmoid, gate[j]);
      }
    }
    const auto compute = [&](int threads) {
      Values out = zeros(t.packed_size());
      Values in_gradient = dy;
      Values gate_gradient = untouched_values(t.fused_size());
      run(
          [&](Stream& stream) {
            cpu::sigmoid_gate_forward(stream, {.x = x.data(),
                                               .gate = gate.data(),
                                               .y = out.data(),
                                               .tokens = t.tokens,
                                               .heads = t.heads,
                                               .head_dim = t.head_dim,
                                               .x_layout = t.packed(),
                                               .gate_layout = t.fused(),
                                               .y_layout = t.packed()});
            cpu::sigmoid_gate_backward(stream, {.x = x.data(),
                                                .gate = gate.data(),
                                                .dy = in_gradient.data(),
                                                .dx = in_gradient.data(),
                                                .dgate = gate_gradient.data(),
                                                .tokens = t.tokens,
                                                .heads = t.heads,
                                                .head_dim = t.head_dim,
                                                .x_layout = t.packed(),
                                                .gate_layout = t.fused(),
                                                .dy_layout = t.packed(),
                                                .dx_layout = t.packed(),
                                                .dgate_layout = t.fused()});
          },
          threads);
      return joined({out, in_gradient, gate_gradient});
    };
    Exact expected = y;
    expected.insert(expected.end(), dx.begin(), dx.end());
    expected.insert(expected.end(), dgate.begin(), dgate.end());
    require_near(compute(2), expected, tolerance, "sigmoid gate");
    require_same_bits(compute, "sigmoid gate");
  }
}

TEST_CASE("activation: the bits do not depend on the threads", "[kernels][activation]") {
  const Values x = random_values(100'003, 1, 4.0F);
  const Values up = random_values(100'003, 2);
  const Values dy = random_values(100'003, 3);
  require_same_bits([&](int threads) { return run_gelu(x, threads); }, "gelu");
  require_same_bits([&](int threads) { return run_gelu_backward(x, dy, threads); },
                    "gelu backward");
  require_same_bits([&](int threads) { return run_swiglu(x, up, threads); }, "swiglu");
  require_same_bits(
      [&](int threads) {
        const SwigluGradients g = run_swiglu_backward(x, up, dy, threads);
        return joined({g.dgate, g.dup});
      },
      "swiglu backward");
}

TEST_CASE("activation: an element's bits do not depend on its place", "[kernels][activation]") {
  const Values x = random_values(257, 5, 4.0F);
  const Values whole = run_gelu(x);
  for (std::size_t i = 0; i < x.size(); i += 13) {
    REQUIRE(run_gelu({x[i]})[0] == whole[i]);
  }
}

}  // namespace
}  // namespace train::kernels::testing::activation_test
