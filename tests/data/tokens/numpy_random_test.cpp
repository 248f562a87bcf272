#include "data/tokens/numpy_random.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/storage/number_list.hpp"

using namespace train;
using namespace train::data;

namespace {

std::vector<std::uint32_t> first_of(std::vector<std::uint32_t> order, std::size_t count) {
  order.resize(std::min(order.size(), count));
  return order;
}

}  // namespace

TEST_CASE("numpy_random: known answers", "[data][numpy_random][ST-10]") {
  NumpyGenerator raw(1337);
  CHECK(raw.next64() == 16198121026341300353U);
  CHECK(raw.next64() == 3422386826845690417U);
  CHECK(raw.next64() == 16987615008358326532U);
  NumpyGenerator small(1337);
  CHECK(small.permutation<std::uint32_t>(8) == std::vector<std::uint32_t>{5, 3, 2, 6, 4, 7, 0, 1});
  CHECK(small.integers(2048) == 592);
  NumpyGenerator large(1337);
  CHECK(first_of(large.permutation<std::uint32_t>(1000), 8) ==
        std::vector<std::uint32_t>{307, 681, 275, 939, 891, 212, 477, 225});
  CHECK(large.integers(2048) == 1040);
  NumpyGenerator next(1338);
  CHECK(first_of(next.permutation<std::uint32_t>(1000), 8) ==
        std::vector<std::uint32_t>{485, 480, 386, 911, 380, 239, 524, 851});
  CHECK(next.integers(2048) == 1020);
}

TEST_CASE("numpy_random: equals NumPy for many seeds and sizes", "[data][numpy_random][ST-10]") {
  const nlohmann::json cases = test::read_fixture("numpy_random.json");
  REQUIRE(cases.size() == 9);
  for (const auto& expected : cases) {
    const auto seed = expected.at("seed").get<std::uint64_t>();
    CAPTURE(seed);
    NumpyGenerator raw(seed);
    for (const auto& value : expected.at("raw")) {
      CHECK(raw.next64() == value.get<std::uint64_t>());
    }
    NumpyGenerator narrow(seed);
    NumpyGenerator wide(seed);
    for (const auto& draw : expected.at("draws")) {
      const auto size = draw.at("size").get<std::uint64_t>();
      CAPTURE(size);
      const auto order = narrow.permutation<std::uint32_t>(size);
      const auto same = wide.permutation<std::uint64_t>(size);
      CHECK(std::equal(order.begin(), order.end(), same.begin(), same.end()));
      test::check_numbers(same, draw.at("order"));
      for (const auto& value : draw.at("integers")) {
        CHECK(narrow.integers(draw.at("below")) == value.get<std::uint64_t>());
        wide.integers(draw.at("below"));
      }
    }
  }
}

TEST_CASE("numpy_random: an interval above 32 bits takes whole draws",
          "[data][numpy_random][ST-10]") {
  NumpyGenerator random(1337);
  NumpyGenerator raw(1337);
  random.next32();  // A half is left over, and stays.
  raw.next64();
  const std::uint64_t max = (std::uint64_t{1} << 40U) - 1;
  CHECK(random.interval(max) == (raw.next64() & max));
  CHECK(random.next32() == 16198121026341300353U >> 32U);
  CHECK(random.interval(0) == 0);
}
