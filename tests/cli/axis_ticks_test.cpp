#include "cli/plot/axis_ticks.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace train::cli::axis_ticks_test {
namespace {

/// "1.5 k" is 1500.
double read(const std::string& label) {
  static const std::map<std::string, double> kUnits = {
      {"", 1.0}, {" k", 1e3}, {" M", 1e6}, {" G", 1e9}, {" T", 1e12}};
  char* end = nullptr;
  const double number = std::strtod(label.c_str(), &end);
  REQUIRE(end != label.c_str());
  return number * kUnits.at(end);
}

void check_labels(const std::vector<double>& values) {
  const auto labels = axis_labels(values);
  REQUIRE(labels.size() == values.size());
  REQUIRE(std::set(labels.begin(), labels.end()).size() == labels.size());
  double gap = std::numeric_limits<double>::infinity();
  for (std::size_t at = 1; at < values.size(); ++at) {
    gap = std::min(gap, values[at] - values[at - 1]);
  }
  gap = values.size() == 1 ? std::abs(values[0]) * 1e-2 : gap;
  for (std::size_t at = 0; at < labels.size(); ++at) {
    CAPTURE(labels[at], values[at]);
    REQUIRE(std::abs(read(labels[at]) - values[at]) <= 0.1 * gap);
  }
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("axis ticks: of any range they lie in it, and their labels differ and say where they are",
          "[actors][plot]") {
  std::mt19937_64 random(Catch::rngSeed());
  std::uniform_real_distribution<double> size(-12.0, 14.0), share(-10.0, 0.0), sign(-1.0, 1.0);
  for (int round = 0; round < 20'000; ++round) {
    const double low = std::copysign(std::pow(10.0, size(random)), sign(random));
    const double high = low + std::abs(low) * std::pow(10.0, share(random));
    CAPTURE(low, high);
    const AxisTicks ticks = axis_ticks(low, high);
    REQUIRE(ticks.low <= low);
    REQUIRE(ticks.high >= high);
    REQUIRE(ticks.values.size() >= 3);
    REQUIRE(ticks.values.size() <= 16);
    REQUIRE(std::ranges::is_sorted(ticks.values));
    check_labels(ticks.values);
    if (low > 0.0) {
      const AxisTicks logarithmic = log_axis_ticks(low, low * std::pow(10.0, -share(random)));
      REQUIRE(logarithmic.values.size() >= 2);
      REQUIRE(logarithmic.values.size() <= 24);
      REQUIRE(std::ranges::is_sorted(logarithmic.values));
      check_labels(logarithmic.values);
    }
  }
}

TEST_CASE("axis ticks: have the digits that they need and no more", "[actors][plot]") {
  CHECK(axis_labels({0, 0.5, 1, 1.5}) == Labels{"0", "0.5", "1", "1.5"});
  CHECK(axis_labels({1, 1.0001, 1.0002}) == Labels{"1", "1.0001", "1.0002"});
  CHECK(axis_labels({0.002999998, 0.002999999, 0.003}) ==
        Labels{"0.002999998", "0.002999999", "0.003"});
  CHECK(axis_labels({2.5e-5, 3e-5, 3.5e-5}) == Labels{"2.5e-05", "3e-05", "3.5e-05"});
  CHECK(axis_labels({0, 2e7, 4e7, 6e7}) == Labels{"0", "20 M", "40 M", "60 M"});
  CHECK(axis_labels({56'500, 57'000, 57'500}) == Labels{"56.5 k", "57 k", "57.5 k"});
  CHECK(axis_labels({100'000, 100'001, 100'002}) == Labels{"100000", "100001", "100002"});
  CHECK(axis_labels({-1, -5e-17, 1}) == Labels{"-1", "0", "1"});
  CHECK(axis_labels({0.01, 0.1, 1, 10, 100}) == Labels{"0.01", "0.1", "1", "10", "100"});
}

TEST_CASE("axis ticks: a constant has one, with what it is", "[actors][plot]") {
  for (const double value : {0.0, 0.003, -2.5, 1.0001, 3e-5, 123456789.0}) {
    CAPTURE(value);
    const AxisTicks ticks = axis_ticks(value, value);
    CHECK(ticks.values == std::vector<double>{value});
    CHECK(ticks.low < value);
    CHECK(ticks.high > value);
    check_labels(ticks.values);
  }
  CHECK(axis_labels(axis_ticks(0.003, 0.003).values) == Labels{"0.003"});
  CHECK(axis_ticks(1.0, std::nextafter(1.0, 2.0)).values.size() == 1);
  CHECK(axis_ticks(0.0, std::numeric_limits<double>::denorm_min()).values.size() == 1);
}

}  // namespace train::cli::axis_ticks_test
