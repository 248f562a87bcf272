#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/harness/fixture_file.hpp"

namespace train::test {

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
