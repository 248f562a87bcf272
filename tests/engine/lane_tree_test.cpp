#include "engine/lanes/lane_tree.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/check.hpp"

namespace train::engine {
namespace {

/// The definition: left is the largest power of two below the number of lanes.
float sum_by_definition(const std::vector<float>& lanes, std::size_t first, std::size_t count) {
  if (count == 1) {
    return lanes[first];
  }
  std::size_t left = 1;
  while (2 * left < count) {
    left *= 2;
  }
  return sum_by_definition(lanes, first, left) +
         sum_by_definition(lanes, first + left, count - left);
}

/// Values of very different sizes, so that almost any other order gives other bits.
std::vector<std::vector<float>> random_lanes(std::size_t lanes, std::size_t elements) {
  std::mt19937 generator(static_cast<unsigned>(lanes));
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> values(lanes, std::vector<float>(elements));
  for (auto& lane : values) {
    for (float& value : lane) {
      value = normal(generator) * std::exp(3.0F * normal(generator));
    }
  }
  return values;
}

}  // namespace

TEST_CASE("lane tree: equals the recursive definition, bit for bit", "[engine][lane_tree][EN-1]") {
  const std::size_t lanes = GENERATE(range(1, 10));
  constexpr std::size_t kElements = 333;
  const auto stream = kernels::make_inline_stream(1);
  LaneTree tree(kernels::cpu_backend(), kElements, static_cast<std::int64_t>(lanes), "test");
  const auto values = random_lanes(lanes, kElements);
  bool differs_from_plain_order = false;
  for (int step = 0; step < 2; ++step) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const auto index = static_cast<std::int64_t>(lane);
      std::memcpy(tree.leaf(index), values[lane].data(), kElements * sizeof(float));
      tree.finish_leaf(*stream, index);
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      std::vector<float> column;
      float plain = 0.0F;
      for (const auto& lane : values) {
        column.push_back(lane[i]);
        plain += lane[i];
      }
      const float expected = sum_by_definition(column, 0, lanes);
      REQUIRE(std::memcmp(&tree.root()[i], &expected, sizeof(float)) == 0);
      differs_from_plain_order = differs_from_plain_order || plain != expected;
    }
  }
  // Otherwise this test could not tell one order from another.
  CHECK(differs_from_plain_order == (lanes > 3));
}

TEST_CASE("lane tree: needs floor(log2(lanes)) + 1 buffers", "[engine][lane_tree]") {
  for (std::int64_t lanes = 1; lanes < 40; ++lanes) {
    const LaneTree tree(kernels::cpu_backend(), 16, lanes, "test");
    const auto buffers = static_cast<std::size_t>(std::floor(std::log2(lanes))) + 1;
    CHECK(tree.size_bytes() == buffers * 16 * sizeof(float));
  }
}

TEST_CASE("lane tree: lanes out of order are refused", "[engine][lane_tree]") {
  const auto stream = kernels::make_inline_stream(1);
  LaneTree tree(kernels::cpu_backend(), 16, 3, "test");
  CHECK_THROWS_AS(tree.leaf(1), CheckFailed);
  CHECK(tree.leaf(0) == tree.leaf(0));
  tree.finish_leaf(*stream, 0);
  CHECK_THROWS_AS(tree.root(), CheckFailed);
  CHECK_THROWS_AS(tree.leaf(0), CheckFailed);
}

TEST_CASE("lane tree: the host's sum of doubles is the same tree", "[engine][lane_tree][EN-1]") {
  const std::vector<double> values = {1e16, 1.0, -1e16, 1.0, 3.0};
  CHECK(tree_sum(values.data(), 5) == (((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0));
  CHECK(tree_sum(values.data(), 3, 2) == ((1e16 + -1e16) + 3.0));
  CHECK(tree_sum(values.data(), 0) == 0.0);
  double on_device = 0.0;
  const auto stream = kernels::make_inline_stream(1);
  kernels::cpu_backend().tree_sum(*stream,
                                  {.values = values.data(), .out = &on_device, .count = 5});
  CHECK(on_device == tree_sum(values.data(), 5));
  kernels::cpu_backend().tree_sum(
      *stream, {.values = values.data(), .out = &on_device, .count = 3, .stride = 2});
  CHECK(on_device == tree_sum(values.data(), 3, 2));
}

}  // namespace train::engine
