#include "storage/weight_files/gguf_blocks.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "tests/storage/number_list.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"

using namespace train;
using namespace train::storage;

namespace {

std::vector<GgufType> all_gguf_types() {
  std::vector<GgufType> types;
  for (std::uint32_t code = 0; code < 100; ++code) {
    if (const GgufType* type = find_gguf_type(code)) {
      CHECK(type->code == code);
      types.push_back(*type);
    }
  }
  return types;
}

}  // namespace

TEST_CASE("gguf blocks: values have the bits that Python's gguf package gives them",
          "[storage][gguf_blocks]") {
  const nlohmann::json fixture = test::read_fixture("gguf_blocks.json");
  std::set<std::string> compared;
  for (const auto& expected : fixture.at("blocks")) {
    const auto name = expected.at("type").get<std::string>();
    CAPTURE(name);
    const std::string bytes = test::bytes_of_hex(expected.at("bytes").get<std::string>());
    const auto wanted = test::floats_of_hex(expected.at("values").get<std::string>());
    for (const GgufType& type : all_gguf_types()) {
      if (type.name == name) {
        std::vector<float> values(wanted.size());
        dequantize_blocks(type, std::as_bytes(std::span(bytes)), values);
        CHECK(test::same_bits(values, wanted));
        compared.insert(name);
      }
    }
  }
  std::size_t readable = 0;
  for (const GgufType& type : all_gguf_types()) {
    readable += type.dequantize != nullptr ? 1 : 0;
  }
  CHECK(compared.size() == readable);
  CHECK(readable == 12);
}

TEST_CASE("gguf blocks: types are distinct and none is larger than the limit",
          "[storage][gguf_blocks]") {
  std::set<std::string_view> names;
  for (const GgufType& type : all_gguf_types()) {
    CHECK(names.insert(type.name).second);
    CHECK(type.block_elements >= 1);
    CHECK(type.block_elements <= kGgufBlockLimit);
    CHECK(type.block_bytes >= 1);
  }
  CHECK(names.size() == 33);
  CHECK(find_gguf_type(4) == nullptr);
  CHECK(find_gguf_type(0xffff'ffff) == nullptr);
  CHECK_THAT(readable_gguf_types(), Catch::Contains("Q6_K") && !Catch::Contains("IQ1_S"));
}

TEST_CASE("gguf blocks: parts of blocks are a programmer's error", "[storage][gguf_blocks]") {
  const GgufType* type = find_gguf_type(8);
  REQUIRE(type != nullptr);
  const std::vector<std::byte> bytes(34);
  std::vector<float> values(32);
  dequantize_blocks(*type, bytes, values);
  dequantize_blocks(*type, {}, {});
  CHECK_THROWS_AS(dequantize_blocks(*type, std::span(bytes).first(33), values), CheckFailed);
  CHECK_THROWS_AS(dequantize_blocks(*type, bytes, std::span(values).first(31)), CheckFailed);
  CHECK_THROWS_AS(dequantize_blocks(*find_gguf_type(24), {}, {}), CheckFailed);
}
