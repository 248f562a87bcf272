// Accuracy against 113-bit arithmetic, special cases against C's Annex F, and the bits themselves
// (P1).
#include "base/math/fixed_math.hpp"

#include <fmt/format.h>
#include <quadmath.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace train {
namespace {

__extension__ using Quad = __float128;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeast = 0x1p-1074;
constexpr double kMost = std::numeric_limits<double>::max();

std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

/// In units of the last place of the true value.
double error_of(double result, Quad truth) {
  const auto nearest = static_cast<double>(truth);
  if (!std::isfinite(nearest)) {
    return result == nearest || (std::isnan(nearest) && std::isnan(result)) ? 0.0 : kInfinity;
  }
  int exponent = -1074;
  if (nearest != 0.0) {
    std::frexp(nearest, &exponent);
  }
  return std::abs(static_cast<double>(
      (result - truth) / static_cast<Quad>(std::ldexp(1.0, std::max(exponent - 53, -1074)))));
}

/// Arguments: uniform in a range, or of either sign (or not) with uniform exponents.
class Arguments {
 public:
  explicit Arguments(std::uint64_t seed) : bits_(seed) {}

  double uniform(double from, double to) {
    return from + (to - from) * (static_cast<double>(bits_() >> 11U) * 0x1p-53);
  }
  double positive(int from, int to) {
    const int exponent = from + static_cast<int>(bits_() % static_cast<unsigned>(to - from));
    return std::ldexp(1.0 + static_cast<double>(bits_() >> 12U) * 0x1p-52, exponent);
  }
  double any(int from, int to) {
    return (bits_() & 1U) != 0 ? positive(from, to) : -positive(from, to);
  }
  /// At most two doubles from a multiple of pi / 2, below 2^50.
  double near_zero_of_angle() {
    const std::uint64_t any = bits_();
    const double multiple = static_cast<double>(1 + any % (1ULL << bits_() % 50)) * M_PI_2;
    return std::bit_cast<double>(bits_of(multiple) + bits_() % 5 - 2);
  }

 private:
  std::mt19937_64 bits_;
};

struct Function {
  std::string name;
  double (*ours)(double);
  Quad (*truth)(Quad);
  double (*argument)(Arguments&);
};

/// Each function over all that it takes, most densely where it is difficult.
const std::vector<Function>& functions() {
  static const std::vector<Function> kFunctions = {
      {"exp", fixed::exp, expq, [](Arguments& a) { return a.uniform(-746.0, 710.0); }},
      {"exp, small", fixed::exp, expq, [](Arguments& a) { return a.any(-70, 4); }},
      {"exp, subnormal", fixed::exp, expq, [](Arguments& a) { return a.uniform(-746.0, -707.0); }},
      {"expm1", fixed::expm1, expm1q, [](Arguments& a) { return a.any(-70, 10); }},
      {"expm1, near 0", fixed::expm1, expm1q, [](Arguments& a) { return a.uniform(-1.0, 1.0); }},
      {"log", fixed::log, logq, [](Arguments& a) { return a.positive(-1074, 1024); }},
      {"log, near 1", fixed::log, logq, [](Arguments& a) { return a.uniform(0.5, 2.0); }},
      {"log, at 1", fixed::log, logq, [](Arguments& a) { return 1.0 + a.any(-52, -5); }},
      {"log10", fixed::log10, log10q, [](Arguments& a) { return a.positive(-1074, 1024); }},
      {"log10, near 1", fixed::log10, log10q, [](Arguments& a) { return a.uniform(0.5, 2.0); }},
      {"log1p", fixed::log1p, log1pq, [](Arguments& a) { return a.positive(-1074, 1024); }},
      {"log1p, near 0", fixed::log1p, log1pq, [](Arguments& a) { return a.any(-70, -1); }},
      {"log1p, at -1", fixed::log1p, log1pq, [](Arguments& a) { return a.uniform(-1.0, 1.0); }},
      {"tanh", fixed::tanh, tanhq, [](Arguments& a) { return a.any(-70, 6); }},
      {"tanh, near 0", fixed::tanh, tanhq, [](Arguments& a) { return a.uniform(-1.0, 1.0); }},
      {"sin", fixed::sin, sinq, [](Arguments& a) { return a.uniform(-10.0, 10.0); }},
      {"cos", fixed::cos, cosq, [](Arguments& a) { return a.uniform(-10.0, 10.0); }},
      {"sin, rotations", fixed::sin, sinq, [](Arguments& a) { return a.any(-40, 32); }},
      {"cos, rotations", fixed::cos, cosq, [](Arguments& a) { return a.any(-40, 32); }},
      {"sin, huge", fixed::sin, sinq, [](Arguments& a) { return a.any(32, 1024); }},
      {"cos, huge", fixed::cos, cosq, [](Arguments& a) { return a.any(32, 1024); }},
      {"sin, near 0", fixed::sin, sinq, [](Arguments& a) { return a.near_zero_of_angle(); }},
      {"cos, near 0", fixed::cos, cosq, [](Arguments& a) { return a.near_zero_of_angle(); }}};
  return kFunctions;
}

void check_accuracy(std::int64_t points) {
  for (const Function& function : functions()) {
    Arguments arguments(Catch::rngSeed());
    double worst = 0.0;
    double at = 0.0;
    for (std::int64_t i = 0; i < points; ++i) {
      const double x = function.argument(arguments);
      const double error = error_of(function.ours(x), function.truth(x));
      if (error > worst) {
        worst = error;
        at = x;
      }
    }
    INFO(fmt::format("{}: {} ulp at {:a}", function.name, worst, at));
    CHECK(worst < 0.625);
  }
}

/// Bases and exponents whose powers are numbers, over all of them and where logarithms are small.
void check_pow(std::int64_t points) {
  Arguments arguments(Catch::rngSeed());
  double worst = 0.0;
  double base_at = 0.0;
  double exponent_at = 0.0;
  for (std::int64_t i = 0; i < points; ++i) {
    const double base = i % 2 == 0 ? arguments.positive(-1074, 1024) : 1.0 + arguments.any(-50, -2);
    const double y =
        i % 3 == 0 ? arguments.any(-60, 8) : arguments.uniform(-750.0, 715.0) / std::log(base);
    const double error = error_of(fixed::pow(base, y), powq(base, y));
    if (std::isfinite(y) && error > worst) {
      worst = error;
      base_at = base;
      exponent_at = y;
    }
  }
  INFO(fmt::format("pow: {} ulp at {:a} to the {:a}", worst, base_at, exponent_at));
  CHECK(worst < 0.625);
}

TEST_CASE("fixed math: every function is within 0.625 ulp", "[base][fixed_math][P1]") {
  check_accuracy(10'000);
  check_pow(100'000);
}

TEST_CASE("fixed math: every function is within 0.625 ulp at 300,000 points",
          "[.full][base][fixed_math]") {
  check_accuracy(300'000);
  check_pow(300'000);
}

TEST_CASE("fixed math: every function is within 0.625 ulp at 10^8 points",
          "[.soak][base][fixed_math]") {
  check_accuracy(100'000'000);
  check_pow(100'000'000);
}

TEST_CASE("fixed math: doubles near multiples of pi keep all bits", "[base][fixed_math]") {
  // The double nearest to a multiple of pi / 2 of all, and the nearest ones of small multiples.
  for (const double x : {0x1.6ac5b262ca1ffp+849, M_PI, M_PI_2, 2.0 * M_PI, 11.0, 22.0, 355.0,
                         0x1p18, 0x1p31, 0x1p1023, kMost}) {
    CAPTURE(x);
    CHECK(error_of(fixed::sin(x), sinq(x)) < 0.625);
    CHECK(error_of(fixed::cos(x), cosq(x)) < 0.625);
    CHECK(bits_of(fixed::sin(-x)) == bits_of(-fixed::sin(x)));
    CHECK(bits_of(fixed::cos(-x)) == bits_of(fixed::cos(x)));
  }
}

TEST_CASE("fixed math: sin_cos has the bits of both", "[base][fixed_math]") {
  Arguments arguments(Catch::rngSeed());
  for (int i = 0; i < 10'000; ++i) {
    const double x = i == 0 ? -0.0 : arguments.any(i % 2 == 0 ? -1000 : -5, i % 2 == 0 ? 1000 : 5);
    CAPTURE(x);
    const auto [sin, cos] = fixed::sin_cos(x);
    REQUIRE(bits_of(sin) == bits_of(fixed::sin(x)));
    REQUIRE(bits_of(cos) == bits_of(fixed::cos(x)));
  }
  CHECK(std::isnan(fixed::sin_cos(kInfinity).sin));
  CHECK(std::isnan(fixed::sin_cos(kNaN).cos));
}

TEST_CASE("fixed math: what is exact is returned exactly", "[base][fixed_math]") {
  for (int n = 0; n <= 22; ++n) {
    CAPTURE(n);
    CHECK(fixed::pow(10.0, n) == std::stod(fmt::format("1e{}", n)));
    CHECK(fixed::log10(std::stod(fmt::format("1e{}", n))) == n);
  }
  for (int n = -1074; n < 1024; ++n) {
    CAPTURE(n);
    REQUIRE(fixed::pow(2.0, n) == std::ldexp(1.0, n));
    REQUIRE(fixed::pow(0.25, -n / 2.0) == std::ldexp(1.0, n));
  }
  CHECK(fixed::pow(-3.0, 5.0) == -243.0);
  CHECK(fixed::pow(-3.0, -2.0) == 1.0 / 9.0);
  CHECK(fixed::pow(-2.0, -1074.0) == kLeast);
  CHECK(fixed::pow(-2.0, -1073.0) == -2.0 * kLeast);
  CHECK(fixed::pow(kLeast, 1.0) == kLeast);
  CHECK(fixed::pow(kMost, 1.0) == kMost);
}

/// The bits, or any NaN.
void check_same(double result, double expected) {
  CAPTURE(result, expected);
  CHECK((std::isnan(expected) ? std::isnan(result) : bits_of(result) == bits_of(expected)));
}

struct Case {
  double (*function)(double);
  double argument;
  double result;
};

const std::vector<Case>& special_cases() {
  static const std::vector<Case> kCases = {{fixed::exp, 0.0, 1.0},
                                           {fixed::exp, -0.0, 1.0},
                                           {fixed::exp, -kInfinity, 0.0},
                                           {fixed::exp, kInfinity, kInfinity},
                                           {fixed::exp, kNaN, kNaN},
                                           {fixed::exp, 709.8, kInfinity},
                                           {fixed::exp, 1e300, kInfinity},
                                           {fixed::exp, -1e300, 0.0},
                                           {fixed::exp, -745.1, kLeast},
                                           {fixed::exp, -745.2, 0.0},
                                           {fixed::exp, kLeast, 1.0},
                                           {fixed::expm1, 0.0, 0.0},
                                           {fixed::expm1, -0.0, -0.0},
                                           {fixed::expm1, -kInfinity, -1.0},
                                           {fixed::expm1, kInfinity, kInfinity},
                                           {fixed::expm1, kNaN, kNaN},
                                           {fixed::expm1, kLeast, kLeast},
                                           {fixed::expm1, -kLeast, -kLeast},
                                           {fixed::expm1, 709.8, kInfinity},
                                           {fixed::expm1, -50.0, -1.0},
                                           {fixed::log, 1.0, 0.0},
                                           {fixed::log, 0.0, -kInfinity},
                                           {fixed::log, -0.0, -kInfinity},
                                           {fixed::log, -kLeast, kNaN},
                                           {fixed::log, -kInfinity, kNaN},
                                           {fixed::log, kInfinity, kInfinity},
                                           {fixed::log, kNaN, kNaN},
                                           {fixed::log10, 1.0, 0.0},
                                           {fixed::log10, 0.0, -kInfinity},
                                           {fixed::log10, -0.0, -kInfinity},
                                           {fixed::log10, -1.0, kNaN},
                                           {fixed::log10, kInfinity, kInfinity},
                                           {fixed::log10, kNaN, kNaN},
                                           {fixed::log1p, 0.0, 0.0},
                                           {fixed::log1p, -0.0, -0.0},
                                           {fixed::log1p, -1.0, -kInfinity},
                                           {fixed::log1p, -1.5, kNaN},
                                           {fixed::log1p, -kInfinity, kNaN},
                                           {fixed::log1p, kInfinity, kInfinity},
                                           {fixed::log1p, kNaN, kNaN},
                                           {fixed::log1p, kLeast, kLeast},
                                           {fixed::log1p, -kLeast, -kLeast},
                                           {fixed::tanh, 0.0, 0.0},
                                           {fixed::tanh, -0.0, -0.0},
                                           {fixed::tanh, kInfinity, 1.0},
                                           {fixed::tanh, -kInfinity, -1.0},
                                           {fixed::tanh, kNaN, kNaN},
                                           {fixed::tanh, -kLeast, -kLeast},
                                           {fixed::tanh, 19.5, 1.0},
                                           {fixed::tanh, -1e300, -1.0},
                                           {fixed::sin, 0.0, 0.0},
                                           {fixed::sin, -0.0, -0.0},
                                           {fixed::sin, kInfinity, kNaN},
                                           {fixed::sin, -kInfinity, kNaN},
                                           {fixed::sin, kNaN, kNaN},
                                           {fixed::sin, -kLeast, -kLeast},
                                           {fixed::cos, 0.0, 1.0},
                                           {fixed::cos, -0.0, 1.0},
                                           {fixed::cos, kInfinity, kNaN},
                                           {fixed::cos, -kInfinity, kNaN},
                                           {fixed::cos, kNaN, kNaN},
                                           {fixed::cos, kLeast, 1.0}};
  return kCases;
}

TEST_CASE("fixed math: special cases of one argument are those of Annex F", "[base][fixed_math]") {
  for (const Case& each : special_cases()) {
    CAPTURE(each.argument);
    check_same(each.function(each.argument), each.result);
  }
}

/// What C11's Annex F.9.4.4 says of pow() where it says it; else the number itself.
double annex_f_pow(double x, double y) {
  const bool whole = std::floor(y) == y && std::abs(y) < kInfinity;
  const bool odd = whole && std::fmod(y, 2.0) != 0.0;
  const double size = std::abs(x);
  if (y == 0.0 || x == 1.0 || (x == -1.0 && std::abs(y) == kInfinity)) {
    return 1.0;
  }
  if (std::isnan(x) || std::isnan(y) ||
      (x < 0.0 && size < kInfinity && std::isfinite(y) && !whole)) {
    return kNaN;
  }
  if (std::abs(y) == kInfinity) {
    return (size < 1.0) == (y < 0.0) ? kInfinity : 0.0;
  }
  const double sign = odd && std::signbit(x) ? -1.0 : 1.0;
  if (size == 0.0 || size == kInfinity) {
    return sign * ((size == 0.0) == (y < 0.0) ? kInfinity : 0.0);
  }
  return sign * static_cast<double>(powq(size, y));
}

TEST_CASE("fixed math: pow has all special cases of Annex F", "[base][fixed_math]") {
  const std::vector<double> values = {
      0.0,    kLeast, 0x1p-1022, 0.3,    0.5,       1.0 - 0x1p-53, 1.0,          1.5,
      2.0,    3.0,    4.0,       1023.0, 1024.0,    1e15,          0x1p52 + 1.0, 0x1p53 - 1.0,
      0x1p53, 0x1p60, 1e300,     kMost,  kInfinity, kNaN};
  for (const double size : values) {
    for (const double exponent : values) {
      for (const int signs : {0, 1, 2, 3}) {
        const double x = (signs & 1) != 0 ? -size : size;
        const double y = (signs & 2) != 0 ? -exponent : exponent;
        CAPTURE(x, y);
        const double expected = annex_f_pow(x, y);
        const double result = fixed::pow(x, y);
        if (std::isfinite(expected) && expected != 0.0) {
          CHECK(std::abs(result - expected) <= std::abs(expected) * 0x1p-52);
        } else {
          check_same(result, expected);
        }
      }
    }
  }
}

/// So many results of each function, folded into one number.
std::uint64_t bits_of_all(std::uint64_t seed) {
  std::uint64_t folded = 0;
  const auto take = [&folded](double result) {
    folded = (folded ^ (std::isnan(result) ? 1 : bits_of(result))) * 0x9e3779b97f4a7c15ULL;
    folded ^= folded >> 29U;
  };
  Arguments arguments(seed);
  for (const Function& function : functions()) {
    for (int i = 0; i < 1000; ++i) {
      take(function.ours(function.argument(arguments)));
    }
  }
  for (int i = 0; i < 1000; ++i) {
    const double base = arguments.positive(-100, 100);
    take(fixed::pow(base, arguments.any(-8, 4)));
  }
  return folded;
}

// Whoever changes a bit of them writes down the new number, raises that of kernel_set() and says
// so.
TEST_CASE("fixed math: the bits are those that are written down", "[base][fixed_math][P1]") {
  CHECK(fmt::format("{:016x}", bits_of_all(7)) == "e718907c781146bf");
}

}  // namespace
}  // namespace train
