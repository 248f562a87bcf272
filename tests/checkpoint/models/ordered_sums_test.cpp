#include "checkpoint/models/ordered_sums.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace train::checkpoint::ordered_sums_test {
namespace {

using Values = std::vector<float>;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// Columns of values whose sums depend on their order, and weights of any size.
struct Summands {
  std::vector<Values> values;
  std::vector<double> weights;

  Summands(std::size_t columns, std::size_t count, std::mt19937& random) {
    std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
    std::uniform_int_distribution<int> exponent(-20, 20);
    for (std::size_t i = 0; i < columns; ++i) {
      values.emplace_back(count);
      std::generate(values.back().begin(), values.back().end(),
                    [&] { return std::ldexp(mantissa(random), exponent(random)); });
      weights.push_back(std::abs(static_cast<double>(mantissa(random))) + 0.01);
    }
  }
  /// Every kind of number: zeros of both signs, the least and the largest, and one column's negated
  /// by the next, with the same weight for all.
  static Summands extremes(std::size_t columns, std::size_t count, std::mt19937& random) {
    Summands all(columns, count, random);
    std::fill(all.weights.begin(), all.weights.end(), all.weights.front());
    std::uniform_int_distribution<std::uint32_t> bits;
    std::uniform_int_distribution<int> kind(0, 7);
    for (std::size_t i = 0; i < columns; ++i) {
      for (std::size_t element = 0; element < count; ++element) {
        const int chosen = kind(random);
        const auto any = std::bit_cast<float>(bits(random));
        float& value = all.values[i][element];
        value = chosen == 0   ? 0.0F
                : chosen == 1 ? -0.0F
                : chosen == 2 ? std::copysign(std::numeric_limits<float>::denorm_min(), value)
                : chosen == 3 ? std::copysign(std::numeric_limits<float>::max(), value)
                : chosen == 4 && i > 0 ? -all.values[i - 1][element]
                : std::isfinite(any)   ? any
                                       : value;
      }
    }
    return all;
  }
  [[nodiscard]] Values sums() const {
    std::vector<WeightedValues> columns;
    for (std::size_t i = 0; i < values.size(); ++i) {
      columns.push_back({values[i].data(), weights[i]});
    }
    Values out(values.front().size());
    ordered_sums(columns, out);
    Values narrow(out.size());
    ordered_sums(columns, narrow, SumVectors::sse2);
    CHECK(std::ranges::equal(out, narrow, {}, bits_of, bits_of));
    return out;
  }
  /// As the header defines it.
  [[nodiscard]] float expected(std::size_t element) const {
    std::vector<double> products;
    for (std::size_t i = 0; i < values.size(); ++i) {
      products.push_back(weights[i] * static_cast<double>(values[i][element]));
    }
    std::sort(products.begin(), products.end());
    double sum = 0.0;
    for (const double product : products) {
      sum += product;
    }
    return static_cast<float>(sum);
  }
};

}  // namespace

TEST_CASE("ordered sums: products from the least to the greatest, for any number of columns",
          "[checkpoint][merged_weights]") {
  std::mt19937 random(Catch::rngSeed());
  for (std::size_t columns = 1; columns <= 40; ++columns) {
    for (const std::size_t count : {1U, 2U, 33U}) {
      CAPTURE(columns, count);
      const Summands summands(columns, count, random);
      const Values sums = summands.sums();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += sums[i] == summands.expected(i) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("ordered sums: the same bits where values of one weight are sorted before the products",
          "[checkpoint][merged_weights]") {
  std::mt19937 random(Catch::rngSeed());
  for (std::size_t columns = 1; columns <= 20; ++columns) {
    for (const std::size_t count : {1U, 3U, 4U, 6U, 257U}) {
      CAPTURE(columns, count);
      const Summands summands = Summands::extremes(columns, count, random);
      const Values sums = summands.sums();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += bits_of(sums[i]) == bits_of(summands.expected(i)) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("ordered sums: a value that is not a number or not finite is lost among no others",
          "[checkpoint][merged_weights]") {
  std::mt19937 random(Catch::rngSeed());
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t columns : {2U, 3U, 8U, 11U, 20U}) {
    for (std::size_t column = 0; column < columns; ++column) {
      CAPTURE(columns, column);
      Summands summands(columns, 3, random);
      summands.values[column] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
      for (const bool same_weight : {false, true}) {
        if (same_weight) {
          std::fill(summands.weights.begin(), summands.weights.end(), 0.25);
        }
        const Values sums = summands.sums();
        CHECK(std::isnan(sums[0]));
        CHECK(sums[1] == infinity);
        CHECK(sums[2] == -infinity);
      }
    }
  }
}

}  // namespace train::checkpoint::ordered_sums_test
