#include "storage/weight_files/element_types.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace train::storage {
namespace {

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  return all;
}

std::uint16_t one_of(WeightType type, float value) {
  std::uint16_t bits = 0;
  (void)from_floats(type, std::span(&value, 1), std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

}  // namespace

TEST_CASE("element types: every pattern comes back as it was", "[storage][weight_files][WF-1]") {
  const auto type = GENERATE(WeightType::bf16, WeightType::f16);
  const std::vector<std::uint16_t> patterns = all_patterns();
  std::vector<float> floats(patterns.size());
  to_floats(type, std::as_bytes(std::span(patterns)), floats);
  std::vector<std::uint16_t> again(patterns.size());
  CHECK(from_floats(type, floats, std::as_writable_bytes(std::span(again))));
  CHECK(again == patterns);
}

TEST_CASE("element types: half precision is what its definition says", "[storage][weight_files]") {
  const std::vector<std::uint16_t> patterns = all_patterns();
  std::vector<float> floats(patterns.size());
  to_floats(WeightType::f16, std::as_bytes(std::span(patterns)), floats);
  for (const std::uint16_t pattern : patterns) {
    const int exponent = (pattern >> 10) & 0x1F;
    const int fraction = pattern & 0x3FF;
    if (exponent == 31) {
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    REQUIRE(static_cast<double>(floats[pattern]) ==
            ((pattern & 0x8000) != 0 ? -magnitude : magnitude));
  }
}

TEST_CASE("element types: rounding takes the nearest, halves to even", "[storage][weight_files]") {
  CHECK(one_of(WeightType::f16, 1.0F) == 0x3C00);
  CHECK(one_of(WeightType::f16, 1.0F + 0x1.0p-11F) == 0x3C00);               // half, to even
  CHECK(one_of(WeightType::f16, 1.0F + 0x1.8p-10F) == 0x3C02);               // half, to even
  CHECK(one_of(WeightType::f16, 1.0F + 0x1.0p-11F + 0x1.0p-23F) == 0x3C01);  // above half
  CHECK(one_of(WeightType::f16, 0x1.0p-25F) == 0x0000);                      // half of the smallest
  CHECK(one_of(WeightType::f16, 0x1.000002p-25F) == 0x0001);
  CHECK(one_of(WeightType::f16, 65519.0F) == 0x7BFF);
  CHECK(one_of(WeightType::f16, 65520.0F) == 0x7C00);
  CHECK(one_of(WeightType::f16, -std::numeric_limits<float>::infinity()) == 0xFC00);
  CHECK((one_of(WeightType::f16, std::nanf("")) & 0x7FFF) > 0x7C00);
  CHECK(one_of(WeightType::bf16, std::bit_cast<float>(0x3f808000U)) == 0x3f80);
  // Against the neighbours: none is nearer.
  INFO("seed " << Catch::rngSeed());
  std::mt19937 random(Catch::rngSeed());
  std::vector<std::uint16_t> patterns = all_patterns();
  std::vector<float> halves(patterns.size());
  to_floats(WeightType::f16, std::as_bytes(std::span(patterns)), halves);
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % (1U << 24U)),
                                   static_cast<int>(random() % 40U) - 50);
    const std::uint16_t found = one_of(WeightType::f16, value);
    const auto distance = [&](int pattern) {
      return std::fabs(static_cast<double>(halves[static_cast<std::size_t>(pattern)]) -
                       static_cast<double>(value));
    };
    if (found < 0x7BFF) {
      REQUIRE(distance(found) <= distance(found + 1));
      REQUIRE((found == 0 || distance(found) <= distance(found - 1)));
    }
  }
}

TEST_CASE("element types: a finite value that becomes infinite is told",
          "[storage][weight_files]") {
  std::vector<float> values{1.0F, 70000.0F};
  std::vector<std::byte> bytes(4);
  CHECK_FALSE(from_floats(WeightType::f16, values, bytes));
  CHECK(from_floats(WeightType::bf16, values, bytes));
  values[1] = std::numeric_limits<float>::max();
  CHECK_FALSE(from_floats(WeightType::bf16, values, bytes));
  values[1] = std::numeric_limits<float>::infinity();
  CHECK(from_floats(WeightType::f16, values, bytes));
}

TEST_CASE("element types: names", "[storage][weight_files]") {
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::f16}) {
    CHECK(weight_type(stored_name(type)) == type);
  }
  CHECK_FALSE(weight_type("I64"));
  CHECK(std::string_view(config_name(WeightType::bf16)) == "bfloat16");
  CHECK(size_of(WeightType::f32) == 4);
}

}  // namespace train::storage
