#include "data/tokens/lane_order.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "base/check.hpp"

using namespace train;
using namespace train::data;

namespace {

std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t epoch,
                                       std::uint64_t size) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t position = 0; position < size; ++position) {
    order.push_back(shuffled_index(seed, epoch, position, size));
  }
  return order;
}

}  // namespace

TEST_CASE("lane_order: every index once, for many sizes", "[data][lane_order][ST-5]") {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const auto order = permutation(size * 7, size % 3, size);
    const std::set<std::uint64_t> distinct(order.begin(), order.end());
    REQUIRE(distinct.size() == size);
    REQUIRE(*distinct.rbegin() == size - 1);
  }
  for (const std::uint64_t size : {1023U, 1024U, 1025U, 65'536U, 65'537U, 100'003U}) {
    std::vector<bool> seen(size, false);
    for (const std::uint64_t index : permutation(1, 2, size)) {
      REQUIRE_FALSE(seen[index]);
      seen[index] = true;
    }
  }
}

TEST_CASE("lane_order: large sizes stay inside", "[data][lane_order][ST-5]") {
  const std::uint64_t size = (std::uint64_t{1} << 40) + 12345;
  std::set<std::uint64_t> seen;
  for (std::uint64_t position = 0; position < 5000; ++position) {
    const std::uint64_t index = shuffled_index(3, 1, position * 219'000'000, size);
    REQUIRE(index < size);
    REQUIRE(seen.insert(index).second);
  }
  REQUIRE_THROWS_AS(shuffled_index(1, 1, 10, 10), CheckFailed);
}

TEST_CASE("lane_order: depends on seed and epoch and nothing else", "[data][lane_order][ST-5]") {
  REQUIRE(permutation(1, 0, 1000) == permutation(1, 0, 1000));
  REQUIRE(permutation(1, 0, 1000) != permutation(2, 0, 1000));
  REQUIRE(permutation(1, 0, 1000) != permutation(1, 1, 1000));
  std::vector<std::uint64_t> identity(1000);
  for (std::uint64_t i = 0; i < identity.size(); ++i) {
    identity[i] = i;
  }
  REQUIRE(permutation(1, 0, 1000) != identity);
}

TEST_CASE("lane_order: the order is fixed for good", "[data][lane_order][ST-5]") {
  // A checkpoint's position means these sequences: a change here breaks every run's resume.
  const std::vector<std::uint64_t> expected = permutation(1, 0, 10);
  const LaneOrder order{.seed = 1, .sequences = 10, .lanes = 2, .micro_batch = 5};
  for (std::uint64_t row = 0; row < 5; ++row) {
    REQUIRE(order.sequence(0, 0, row) == expected[row]);
    REQUIRE(order.sequence(0, 1, row) == expected[5 + row]);
  }
  REQUIRE(expected == std::vector<std::uint64_t>{3, 7, 1, 8, 4, 0, 6, 9, 2, 5});
}

TEST_CASE("lane_order: a shuffle looks like one", "[data][lane_order][ST-5]") {
  // Mean distance of neighbours is a third of the size for a random order.
  const std::uint64_t size = 10'000;
  const auto order = permutation(5, 0, size);
  double distance = 0;
  double moved = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    distance += std::abs(static_cast<double>(order[i]) - static_cast<double>(order[i - 1]));
    moved += std::abs(static_cast<double>(order[i]) - static_cast<double>(i));
  }
  const auto third = static_cast<double>(size) / 3.0;
  REQUIRE(distance / static_cast<double>(size) == Approx(third).epsilon(0.05));
  REQUIRE(moved / static_cast<double>(size) == Approx(third).epsilon(0.05));
}

TEST_CASE("lane_order: each sequence once an epoch, whatever the lanes",
          "[data][lane_order][ST-4]") {
  // 3 lanes of 4 rows over 30 sequences: epochs end in the middle of a step.
  const LaneOrder order{.seed = 9, .sequences = 30, .lanes = 3, .micro_batch = 4};
  std::vector<std::uint64_t> read;
  for (std::uint64_t step = 0; step < 10; ++step) {
    for (std::uint64_t lane = 0; lane < 3; ++lane) {
      for (std::uint64_t row = 0; row < 4; ++row) {
        read.push_back(order.sequence(step, lane, row));
      }
    }
  }
  REQUIRE(read.size() == 120);
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    const auto first = read.begin() + static_cast<std::ptrdiff_t>(30 * epoch);
    REQUIRE(std::set<std::uint64_t>(first, first + 30).size() == 30);
  }
  REQUIRE(order.epoch(0) == 0);
  REQUIRE(order.epoch(2) == 0);
  REQUIRE(order.epoch(5) == 2);
  REQUIRE_THROWS_AS(order.sequence(0, 3, 0), CheckFailed);
  REQUIRE_THROWS_AS(order.sequence(0, 0, 4), CheckFailed);
}

TEST_CASE("lane_order: regrouping lanes does not change what is read", "[data][lane_order][ST-4]") {
  const LaneOrder wide{.seed = 4, .sequences = 50, .lanes = 8, .micro_batch = 2};
  const LaneOrder deep{.seed = 4, .sequences = 50, .lanes = 4, .micro_batch = 4};
  for (std::uint64_t step = 0; step < 20; ++step) {
    for (std::uint64_t i = 0; i < 16; ++i) {
      REQUIRE(wide.sequence(step, i / 2, i % 2) == deep.sequence(step, i / 4, i % 4));
    }
  }
}

TEST_CASE("lane_order: validation reads in file order, each sequence once",
          "[data][lane_order][ST-4]") {
  REQUIRE(validation_sequence(0, 0, 4, 100) == 0);
  REQUIRE(validation_sequence(1, 2, 4, 100) == 6);
  REQUIRE(validation_sequence(1, 0, 4, 5) == 4);
  REQUIRE(validation_sequence(1, 1, 4, 5) == std::nullopt);
  REQUIRE(validation_sequence(2, 0, 4, 5) == std::nullopt);
}
