#include "engine/optimizer/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace train::engine::exact_sum_test {
namespace {

using Limits = std::numeric_limits<double>;

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) {
    sum.add(value);
  }
  return sum.value();
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

/// Any finite double: every exponent is as likely as another.
double any_double(std::mt19937_64& random) {
  while (true) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) {
      return value;
    }
  }
}

}  // namespace

TEST_CASE("exact sum: one number comes back as it was", "[engine][exact_sum]") {
  std::mt19937_64 random(1);
  std::vector<double> values = {0.0,           1.0,           -1.0,          Limits::denorm_min(),
                                Limits::max(), Limits::min(), -Limits::max()};
  for (int i = 0; i < 2000; ++i) {
    values.push_back(any_double(random));
  }
  for (const double value : values) {
    CHECK(bits(sum_of({value})) == bits(value));
    CHECK(sum_of({value, -value}) == 0.0);
  }
}

TEST_CASE("exact sum: nothing is lost between the largest and the smallest",
          "[engine][exact_sum]") {
  CHECK(sum_of({1e300, 1.0, -1e300}) == 1.0);
  CHECK(sum_of({Limits::max(), Limits::denorm_min(), -Limits::max()}) == Limits::denorm_min());
  CHECK(sum_of({1.0, -Limits::denorm_min()}) == 1.0);
  CHECK(sum_of({-1e-300, 1e300, 3e-300, -1e300}) == 3e-300 - 1e-300);
  CHECK(sum_of({Limits::max(), Limits::max()}) == Limits::infinity());
  CHECK(sum_of({Limits::max(), Limits::max(), -Limits::max()}) == Limits::max());
}

TEST_CASE("exact sum: the result is rounded once, ties to even", "[engine][exact_sum]") {
  const double half = std::ldexp(1.0, -53);  // Of the last place of 1.
  const double last = 2 * half;
  CHECK(sum_of({1.0, half}) == 1.0);
  CHECK(sum_of({1.0, half, Limits::denorm_min()}) == 1.0 + last);
  CHECK(sum_of({1.0 + last, half}) == 1.0 + 2 * last);
  CHECK(sum_of({-1.0, -half}) == -1.0);
  CHECK(sum_of({-1.0 - last, -half}) == -1.0 - 2 * last);
  CHECK(sum_of({1.0, half / 2, half / 2, -Limits::denorm_min()}) == 1.0);
  CHECK(sum_of({2.0 - last, half}) == 2.0);  // A carry into the next binade.
  // Of two addends the sum is what the machine rounds.
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> few(-3.0, 3.0);
  for (int i = 0; i < 5000; ++i) {
    const double a = few(random);
    const double b = std::ldexp(few(random), static_cast<int>(random() % 60) - 60);
    CHECK(sum_of({a, b}) == a + b);
  }
}

TEST_CASE("exact sum: parts in any order and in any cut have the same bits",
          "[engine][exact_sum][optimizer]") {
  std::mt19937_64 random(3);
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) {
    values.push_back(any_double(random) * 0x1p-600);
  }
  const std::uint64_t expected = bits(sum_of(values));
  for (int times = 0; times < 20; ++times) {
    std::shuffle(values.begin(), values.end(), random);
    std::vector<ExactSum> parts(1 + random() % 7);
    for (const double value : values) {
      parts[random() % parts.size()].add(value);
    }
    const std::vector<ExactSum> sent = sums_of(words_of(parts));
    ExactSum all;
    for (const ExactSum& part : sent) {
      all.add(part);
    }
    CHECK(bits(all.value()) == expected);
  }
}

TEST_CASE("exact sum: a NaN or an infinity stays in the sum", "[engine][exact_sum]") {
  for (const double bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    ExactSum sum;
    sum.add(bad);
    sum.add(1.0);
    ExactSum all;
    add_each({&all, 1}, {&sum, 1});
    CHECK(std::isnan(all.value()));
  }
}

}  // namespace train::engine::exact_sum_test
