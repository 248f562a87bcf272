#include "checkpoint/models/merged_weights.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace train::checkpoint::merged_weights_test {
namespace {

using Values = std::vector<float>;

constexpr std::int64_t kCols = 7;

/// One parameter's rows.
class Rows final : public engine::WeightSource {
 public:
  explicit Rows(Values values) : values_(std::move(values)) {}
  Status read_rows(const engine::Parameter& /*parameter*/, std::int64_t first_row,
                   std::int64_t /*rows*/, std::span<float> out) const override {
    std::copy_n(values_.begin() + first_row * kCols, out.size(), out.begin());
    return {};
  }

 private:
  Values values_;
};

/// Values whose sums depend on their order.
Values uneven_values(std::size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
  std::uniform_int_distribution<int> exponent(-30, 30);
  Values values(count);
  std::generate(values.begin(), values.end(),
                [&] { return std::ldexp(mantissa(random), exponent(random)); });
  return values;
}

Values merged(const std::vector<MergedModel>& models, std::int64_t rows, bool whole) {
  const engine::Parameter parameter{.name = "w", .shape = {rows, kCols}};
  Values out(static_cast<std::size_t>(rows * kCols));
  REQUIRE(MergedWeights(models, whole).read_rows(parameter, 0, rows, out).ok());
  return out;
}

}  // namespace

TEST_CASE("merged weights: the mean in double, the same bits in any order and in any pieces",
          "[checkpoint][merged_weights]") {
  std::mt19937 random(Catch::rngSeed());
  constexpr std::int64_t rows = 200'000;  // Several pieces.
  std::vector<MergedModel> models;
  std::vector<Values> values;
  for (const double share : {0.5, 0.3, 0.15, 0.05}) {
    values.push_back(uneven_values(static_cast<std::size_t>(rows * kCols), random));
    models.push_back({std::make_shared<Rows>(values.back()), share});
  }
  const Values first = merged(models, rows, false);
  for (std::size_t i = 0; i < first.size(); ++i) {
    long double sum = 0.0L;
    long double size = 0.0L;
    for (std::size_t m = 0; m < models.size(); ++m) {
      const auto product =
          static_cast<long double>(models[m].share * static_cast<double>(values[m][i]));
      sum += product;
      size += std::abs(product);
    }
    const long double near = std::abs(sum) * 1e-7L + size * 1e-15L;
    if (std::abs(sum - static_cast<long double>(first[i])) > near) {
      FAIL("element " << i << " is " << first[i] << " in place of " << static_cast<double>(sum));
    }
  }
  CHECK(merged(models, rows, true) == first);
  std::reverse(models.begin(), models.end());
  CHECK(merged(models, rows, false) == first);
  std::swap(models[0], models[2]);
  CHECK(merged(models, rows, false) == first);
}

TEST_CASE("merged weights: a model with itself is the model", "[checkpoint][merged_weights]") {
  std::mt19937 random(Catch::rngSeed());
  const Values values = uneven_values(30 * kCols, random);
  const auto model = std::make_shared<Rows>(values);
  for (const std::size_t count : {2U, 3U, 8U}) {
    const std::vector<MergedModel> models(count, {model, 1.0 / static_cast<double>(count)});
    CHECK(merged(models, 30, false) == values);
  }
}

TEST_CASE("merged weights: a sum that is not finite is an error", "[checkpoint][merged_weights]") {
  const Values large(kCols, std::numeric_limits<float>::max());
  const engine::Parameter parameter{.name = "w", .shape = {1, kCols}};
  Values out(kCols);
  const MergedWeights weights(
      {{std::make_shared<Rows>(large), 1.0}, {std::make_shared<Rows>(large), 1.0}}, false);
  const Status status = weights.read_rows(parameter, 0, 1, out);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message == "the merged w is not finite");
}

}  // namespace train::checkpoint::merged_weights_test
