// Functions of float vectors: how near they come, and that both instruction sets agree (P1).
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/math/fixed_math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/functions_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

template <class Function>
void apply(const Function& function, float* x, std::int64_t count) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(function(d, load(d, x + i, part)), d, x + i, part);
  });
}

void apply_exp(float* x, std::int64_t count) {
  apply([](Floats d, FloatVec v) { return exp_of(d, v); }, x, count);
}
void apply_exp_of_negative(float* x, std::int64_t count) {
  apply([](Floats d, FloatVec v) { return exp_of_negative(d, v); }, x, count);
}
void apply_log(float* x, std::int64_t count) {
  apply([](Floats d, FloatVec v) { return log_of(d, v); }, x, count);
}
void apply_tanh(float* x, std::int64_t count) {
  apply([](Floats d, FloatVec v) { return tanh_of(d, v); }, x, count);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>

#include "tests/support/devices/instruction_sets.hpp"

namespace train::kernels::cpu {

HWY_EXPORT(apply_exp);
HWY_EXPORT(apply_exp_of_negative);
HWY_EXPORT(apply_log);
HWY_EXPORT(apply_tanh);

namespace {

enum class Which : std::uint8_t { exp, exp_of_negative, log, tanh };

void apply_one(Which which, std::vector<float>& x) {
  const auto count = static_cast<std::int64_t>(x.size());
  switch (which) {
    case Which::exp:
      return HWY_DYNAMIC_DISPATCH(apply_exp)(x.data(), count);
    case Which::exp_of_negative:
      return HWY_DYNAMIC_DISPATCH(apply_exp_of_negative)(x.data(), count);
    case Which::log:
      return HWY_DYNAMIC_DISPATCH(apply_log)(x.data(), count);
    case Which::tanh:
      return HWY_DYNAMIC_DISPATCH(apply_tanh)(x.data(), count);
  }
}

double truth_of(Which which, float x) {
  return which == Which::log ? fixed::log(x)
                             : (which == Which::tanh ? fixed::tanh(x) : fixed::exp(x));
}

double error_of(float result, double truth) {
  const auto nearest = static_cast<float>(truth);
  if (!std::isfinite(nearest)) {
    const bool same = std::isnan(nearest) ? std::isnan(result) : result == nearest;
    return same ? 0.0 : std::numeric_limits<double>::infinity();
  }
  int exponent = -149;
  if (nearest != 0.0F) {
    std::frexp(nearest, &exponent);
  }
  return std::abs((result - truth) / std::ldexp(1.0, std::max(exponent - 24, -149)));
}

/// Every `stride`th float, of those that the function takes.
std::vector<float> floats(Which which, std::uint64_t first, std::uint64_t stride,
                          std::size_t most) {
  std::vector<float> all;
  for (std::uint64_t bits = first; bits < (1ULL << 32U) && all.size() < most; bits += stride) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const bool taken = which != Which::log || std::isnan(x) ||
                       (x >= std::numeric_limits<float>::min() && std::isfinite(x));
    all.push_back(taken ? x : 1.0F);
  }
  return all;
}

void check_function(Which which, double most_ulp, std::uint64_t stride) {
  constexpr std::size_t part = 1U << 20U;
  double worst = 0.0;
  float at = 0.0F;
  for (std::uint64_t first = 0; first < (1ULL << 32U); first += stride * part) {
    const std::vector<float> x = floats(which, first, stride, part);
    std::vector<float> wide = x;
    apply_one(which, wide);
    if (test::has_avx512()) {
      std::vector<float> narrow = x;
      const test::WithoutAvx512 without;
      apply_one(which, narrow);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool same =
            std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(narrow[i]);
        if (!same && !(std::isnan(wide[i]) && std::isnan(narrow[i]))) {
          FAIL("differs at " << x[i]);
        }
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (const double error = error_of(wide[i], truth_of(which, x[i])); error > worst) {
        worst = error;
        at = x[i];
      }
    }
  }
  CAPTURE(static_cast<int>(which), at, worst);
  CHECK(worst < most_ulp);
}

void check_functions(std::uint64_t stride) {
  check_function(Which::exp, 1.1, stride);
  check_function(Which::exp_of_negative, 1.1, stride);
  check_function(Which::log, 2.0, stride);
  check_function(Which::tanh, 3.0, stride);
}

TEST_CASE("functions: are near, and the same with both instruction sets",
          "[kernels][functions][P1]") {
  check_functions(4001);
}

TEST_CASE("functions: are near, and the same with both instruction sets, of all floats",
          "[.soak][kernels][functions][P1]") {
  check_functions(1);
}

TEST_CASE("functions: the way to exp() does not enter its bits", "[kernels][functions]") {
  // Where all of a vector's results are normal it takes a shorter one.
  std::vector<float> together;
  for (int i = 0; i < 4096; ++i) {
    together.push_back(-0.02F * static_cast<float>(i));
  }
  std::vector<float> apart = together;
  apply_one(Which::exp_of_negative, together);
  for (float& x : apart) {
    std::vector<float> beside(16, -100.0F);
    beside.front() = x;
    apply_one(Which::exp_of_negative, beside);
    x = beside.front();
  }
  CHECK(together == apart);
}

}  // namespace
}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
