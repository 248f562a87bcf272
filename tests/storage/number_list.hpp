#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace train::test {

/// A file that tests/reference/make_order_fixtures.py made.
inline nlohmann::json read_fixture(const std::string& name) {
  std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) + "/tests/reference/fixtures/" + name);
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

/// Compares all numbers with {"first", "count", "checksum"}.
inline void check_numbers(const std::vector<std::uint64_t>& values,
                          const nlohmann::json& expected) {
  REQUIRE(values.size() == expected.at("count").get<std::size_t>());
  const auto first = expected.at("first").get<std::vector<std::uint64_t>>();
  CHECK(std::equal(first.begin(), first.end(), values.begin()));
  std::uint64_t checksum = 0;
  for (const std::uint64_t value : values) {
    checksum = checksum * 1000003U + value;
  }
  CHECK(checksum == expected.at("checksum").get<std::uint64_t>());
}

}  // namespace train::test
