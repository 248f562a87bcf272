#include "storage/weight_files/gguf_encoding.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "tests/storage/number_list.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"

// What tests/reference/gguf/make_gguf_encoding_fixtures.py recorded of `gguf` and llama.cpp.
namespace train::storage {
namespace {

using Json = nlohmann::json;

constexpr const char* kBlockTypes[] = {"Q8_0", "Q4_K", "Q5_K", "Q6_K"};

const GgufType& writable(std::string_view name) {
  const GgufType* type = find_writable_gguf_type(name);
  REQUIRE(type != nullptr);
  return *type;
}

/// Empty: the values do not fit the type.
std::string encoded(std::string_view name, std::span<const float> values) {
  const GgufType& type = writable(name);
  std::string bytes(values.size() / type.block_elements * type.block_bytes, '\x5a');
  return encode_blocks(type, values, std::as_writable_bytes(std::span(bytes))) ? bytes
                                                                               : std::string();
}

std::vector<float> decoded(std::string_view name, const std::string& bytes) {
  const GgufType& type = writable(name);
  std::vector<float> values(bytes.size() / type.block_bytes * type.block_elements);
  dequantize_blocks(type, std::as_bytes(std::span(bytes)), values);
  return values;
}

/// Root of the mean squared difference between values and what their blocks stand for.
double error_of(std::string_view name, const std::vector<float>& values) {
  const std::vector<float> read = decoded(name, encoded(name, values));
  REQUIRE(read.size() == values.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(read[i]) - static_cast<double>(values[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<float> normal_values(std::size_t count, std::mt19937& random, float width = 1.0F) {
  std::normal_distribution<float> normal(0.0F, width);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

}  // namespace

TEST_CASE("gguf encoding: Q8_0 has the bytes of Python's gguf package",
          "[storage][gguf_encoding]") {
  const Json fixture = test::read_fixture("gguf_encoding.json");
  std::vector<Json> all = fixture.at("cases");
  all.push_back(fixture.at("special"));
  for (const Json& one : all) {
    INFO(one.value("name", "special"));
    const auto values = test::floats_of_hex(one.at("values").get_ref<const std::string&>());
    CHECK(encoded("Q8_0", values) ==
          test::bytes_of_hex(one.at("q8_0").get_ref<const std::string&>()));
  }
  CHECK(all.size() == 8);
}

TEST_CASE("gguf encoding: Q4_K, Q5_K and Q6_K err at most as llama.cpp's quantisers do",
          "[storage][gguf_encoding]") {
  constexpr double allowed = 1.01;
  std::size_t compared = 0;
  const Json fixture = test::read_fixture("gguf_encoding.json");
  for (const Json& one : fixture.at("cases")) {
    const auto values = test::floats_of_hex(one.at("values").get_ref<const std::string&>());
    for (const auto& [name, theirs] : one.at("errors").items()) {
      INFO(one.at("name") << " " << name);
      CHECK(error_of(name, values) <= allowed * theirs.get<double>());
      ++compared;
    }
  }
  CHECK(compared == 21);
}

TEST_CASE("gguf encoding: a block's bytes depend on its own values alone",
          "[storage][gguf_encoding]") {
  constexpr unsigned seed = 71;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const char* name : kBlockTypes) {
    INFO(name);
    const std::size_t block = writable(name).block_elements;
    const std::vector<float> values = normal_values(6 * block, random);
    const std::string whole = encoded(name, values);
    std::string apart;
    for (std::size_t i = 0; i < 6; ++i) {
      apart += encoded(name, std::span(values).subspan(i * block, block));
    }
    CHECK(whole == apart);
    std::vector<float> other = normal_values(5 * block, random, 100.0F);
    other.insert(other.begin(), values.begin(),
                 values.begin() + static_cast<std::ptrdiff_t>(block));
    CHECK(encoded(name, other).substr(0, writable(name).block_bytes) ==
          whole.substr(0, writable(name).block_bytes));
  }
}

TEST_CASE("gguf encoding: what a type can hold exactly comes back", "[storage][gguf_encoding]") {
  for (const char* name : kBlockTypes) {
    INFO(name);
    const std::size_t block = writable(name).block_elements;
    const std::vector<float> zeros(2 * block, 0.0F);
    CHECK(test::same_bits(decoded(name, encoded(name, zeros)), zeros));
    CHECK(error_of(name, std::vector<float>(block, -0.0F)) == 0.0);
    // One group beside zeros, and all alike.
    std::vector<float> one(block, 0.0F);
    one[block / 2] = 0.5F;
    CHECK(error_of(name, one) < 0.5 / 1000);
    CHECK(error_of(name, std::vector<float>(block, -2.0F)) < 2.0 / 1000);
  }
  const std::vector<float> plain = {1.0F, -0.0F, 65504.0F, 0x1p-24F};
  CHECK(test::same_bits(decoded("F32", encoded("F32", plain)), plain));
  CHECK(test::same_bits(decoded("F16", encoded("F16", plain)), plain));
  CHECK(decoded("BF16", encoded("BF16", std::vector<float>{0x1.01p0F, 0x1.03p0F})) ==
        std::vector<float>{1.0F, 0x1.04p0F});
}

TEST_CASE("gguf encoding: subnormal values and scales keep their bounds",
          "[storage][gguf_encoding]") {
  for (const float size : {1e-45F, 1e-40F, 1e-30F, 1e-9F, 1e-6F}) {
    for (const char* name : kBlockTypes) {
      INFO(name << " " << size);
      const std::size_t block = writable(name).block_elements;
      std::vector<float> values(block);
      for (std::size_t i = 0; i < block; ++i) {
        values[i] = size * (i % 2 == 0 ? 1.0F : -0.5F);
      }
      const std::vector<float> read = decoded(name, encoded(name, values));
      REQUIRE(read.size() == block);
      // A step of the smallest half that a scale can have, times the largest level.
      constexpr float most = 0x1p-24F * 128.0F;
      CHECK(std::all_of(read.begin(), read.end(), [&](float value) {
        return std::isfinite(value) && std::abs(value) <= std::max(2.0F * size, most);
      }));
    }
  }
}

TEST_CASE("gguf encoding: values that are not finite or too large are refused",
          "[storage][gguf_encoding]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char* name : kBlockTypes) {
    INFO(name);
    std::vector<float> values(writable(name).block_elements, 0.25F);
    CHECK_FALSE(encoded(name, values).empty());
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max(), -1e30F}) {
      for (const std::size_t place : {std::size_t{0}, values.size() - 1}) {
        std::vector<float> changed = values;
        changed[place] = bad;
        INFO(bad << " at " << place);
        CHECK(encoded(name, changed).empty());
      }
    }
  }
  CHECK(encoded("F16", std::vector<float>{1e6F}).empty());
  CHECK_FALSE(encoded("BF16", std::vector<float>{1e30F}).empty());
}

TEST_CASE("gguf encoding: other types are not written, parts of blocks a programmer's error",
          "[storage][gguf_encoding]") {
  std::size_t found = 0;
  for (std::uint32_t code = 0; code < 100; ++code) {
    const GgufType* type = find_gguf_type(code);
    const GgufType* same = type == nullptr ? nullptr : find_writable_gguf_type(type->name);
    CHECK((same == nullptr || same == type));
    found += same == nullptr ? 0 : 1;
  }
  CHECK(found == 7);
  CHECK(find_writable_gguf_type("Q4_0") == nullptr);
  CHECK(find_writable_gguf_type("") == nullptr);
  std::vector<std::byte> bytes(144);
  const std::vector<float> values(256);
  CHECK_THROWS_AS((void)encode_blocks(writable("Q4_K"), std::span(values).first(255), bytes),
                  CheckFailed);
  CHECK_THROWS_AS((void)encode_blocks(writable("Q4_K"), values, std::span(bytes).first(143)),
                  CheckFailed);
  CHECK_THROWS_AS((void)encode_blocks(*find_gguf_type(2), values, bytes), CheckFailed);
}

}  // namespace train::storage
