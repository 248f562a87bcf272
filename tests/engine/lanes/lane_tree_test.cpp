#include "engine/lanes/lane_tree.hpp"
#include "kernels/optimizer/global_norm.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/check.hpp"
#include "kernels/backend.hpp"

namespace train::engine::lane_tree_test {
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

/// The definition for any radix: level by level, each node its children from left to right.
float sum_by_levels(std::vector<float> level, const std::vector<std::int64_t>& radix) {
  for (std::size_t j = 0; level.size() > 1; ++j) {
    const auto children = static_cast<std::size_t>(radix[std::min(j, radix.size() - 1)]);
    std::vector<float> above;
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (i % children == 0) {
        above.push_back(level[i]);
      } else {
        above.back() += level[i];
      }
    }
    level = above;
  }
  return level.front();
}

using Radix = std::vector<std::int64_t>;
const std::vector<Radix> kRadices = {{2}, {3}, {16}, {4, 2}, {8, 4}, {2, 3}};

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

/// What a tree over all lanes has to be, bit for bit.
void check_root(const LaneTree& tree, const std::vector<std::vector<float>>& values,
                const Radix& radix = {2}) {
  for (std::size_t i = 0; i < values.front().size(); ++i) {
    std::vector<float> column;
    for (const auto& lane : values) {
      column.push_back(lane[i]);
    }
    const float expected = radix == Radix{2} ? sum_by_definition(column, 0, column.size())
                                             : sum_by_levels(column, radix);
    REQUIRE(std::memcmp(&tree.root()[i], &expected, sizeof(float)) == 0);
  }
}

std::vector<LaneRange> single_lanes(LaneRange range) {
  std::vector<LaneRange> lanes;
  for (std::int64_t lane = range.first; lane < range.end(); ++lane) {
    lanes.push_back({lane, 1});
  }
  return lanes;
}

/// A rank's way: lanes are computed where place() says.
void compute_lanes(LaneTree& tree, kernels::Stream& stream, LaneRange range,
                   const std::vector<std::vector<float>>& values) {
  std::vector<float> leaf(values.front().size());
  for (const LaneRange lane : single_lanes(range)) {
    float* where = tree.place(lane, leaf.data());
    const auto& value = values[static_cast<std::size_t>(lane.first)];
    std::memcpy(where, value.data(), value.size() * sizeof(float));
    tree.finalize(stream, lane, where);
  }
}

constexpr std::int64_t kElements = 333;

}  // namespace

TEST_CASE("lane tree: equals the recursive definition, bit for bit", "[engine][lane_tree][EN-1]") {
  const std::int64_t lanes = GENERATE(range(1, 130));
  const auto stream = kernels::make_inline_stream(1);
  const RadixTree order(lanes);
  const auto buffers = lane_tree_buffers(single_lanes({0, lanes}), order, SumOrder::canonical);
  LaneTree tree(kernels::cpu_backend(), kElements, order, SumOrder::canonical, buffers, "test");
  const auto values = random_lanes(static_cast<std::size_t>(lanes), kElements);
  for (int step = 0; step < 2; ++step) {
    compute_lanes(tree, *stream, {0, lanes}, values);
    check_root(tree, values);
    tree.clear();
  }
  bool differs_from_plain_order = false;
  for (std::size_t i = 0; i < kElements; ++i) {
    float plain = 0.0F;
    for (const auto& lane : values) {
      plain += lane[i];
    }
    differs_from_plain_order = differs_from_plain_order || plain != tree.root()[i];
  }
  // Otherwise this test could not tell one order from another.
  CHECK(differs_from_plain_order == (lanes > 3));
}

TEST_CASE("lane tree: any radix equals its definition, bit for bit", "[engine][lane_tree][EN-1]") {
  const auto stream = kernels::make_inline_stream(1);
  for (const Radix& radix : kRadices) {
    for (std::int64_t lanes = 1; lanes <= 129; lanes += lanes < 20 ? 1 : 7) {
      const RadixTree order(lanes, radix);
      const auto buffers = lane_tree_buffers(single_lanes({0, lanes}), order, SumOrder::canonical);
      LaneTree tree(kernels::cpu_backend(), kElements, order, SumOrder::canonical, buffers, "test");
      const auto values = random_lanes(static_cast<std::size_t>(lanes), kElements);
      compute_lanes(tree, *stream, {0, lanes}, values);
      CAPTURE(radix, lanes);
      check_root(tree, values, radix);
    }
  }
}

TEST_CASE("lane tree: whoever adds which lanes, the sum is the same", "[engine][lane_tree][EN-1]") {
  const std::int64_t lanes = GENERATE(1, 2, 5, 8, 13, 16, 37);
  const Radix radix = GENERATE(from_range(kRadices));
  CAPTURE(lanes, radix);
  const RadixTree order(lanes, radix);
  const auto stream = kernels::make_inline_stream(1);
  const auto values = random_lanes(static_cast<std::size_t>(lanes), kElements);
  std::mt19937 generator(5);
  for (int repeat = 0; repeat < 12; ++repeat) {
    // Ranks take runs of any length, add what they can, and send subtrees to the owner.
    std::vector<LaneRange> runs;
    std::vector<LaneRange> arrivals;
    for (std::int64_t first = 0; first < lanes;) {
      const auto most = static_cast<int>(lanes - first);
      const LaneRange run{first, std::uniform_int_distribution<int>(1, most)(generator)};
      runs.push_back(run);
      for (const LaneRange sum : order.partial_sums(run)) {
        arrivals.push_back(sum);
      }
      first = run.end();
    }
    const auto buffers = lane_tree_buffers(arrivals, order, SumOrder::canonical);
    LaneTree owner(kernels::cpu_backend(), kElements, order, SumOrder::canonical, buffers, "owner");
    for (const LaneRange run : runs) {
      const auto own = lane_tree_buffers(single_lanes(run), order, SumOrder::canonical);
      LaneTree rank(kernels::cpu_backend(), kElements, order, SumOrder::canonical, own, "rank");
      compute_lanes(rank, *stream, run, values);
      const auto held = rank.held();
      const auto expected = order.partial_sums(run);
      REQUIRE(held.size() == expected.size());
      for (std::size_t i = 0; i < held.size(); ++i) {
        REQUIRE(held[i].first == expected[i]);
        owner.add(*stream, held[i].first, held[i].second);
      }
    }
    REQUIRE(owner.held().size() == 1);
    check_root(owner, values, radix);
  }
}

TEST_CASE("lane tree: in the order of arrival it is one running sum", "[engine][lane_tree]") {
  const auto stream = kernels::make_inline_stream(1);
  const auto values = random_lanes(6, kElements);
  const auto buffers = lane_tree_buffers(single_lanes({0, 6}), RadixTree(6), SumOrder::arrival);
  REQUIRE(buffers == 1);
  LaneTree tree(kernels::cpu_backend(), kElements, RadixTree(6), SumOrder::arrival, buffers,
                "test");
  compute_lanes(tree, *stream, {0, 6}, values);
  CHECK(tree.held().size() == 1);
  for (std::size_t i = 0; i < kElements; ++i) {
    float plain = values[0][i];
    for (std::size_t lane = 1; lane < 6; ++lane) {
      plain += values[lane][i];
    }
    REQUIRE(tree.root()[i] == plain);
  }
}

TEST_CASE("lane tree: the lane that completes a sum needs no buffer", "[engine][lane_tree]") {
  for (std::int64_t lanes = 2; lanes < 40; ++lanes) {
    const RadixTree order(lanes);
    const auto buffers = lane_tree_buffers(single_lanes({0, lanes}), order, SumOrder::canonical);
    CHECK(buffers == static_cast<std::int64_t>(std::floor(std::log2(lanes))));
    const LaneTree tree(kernels::cpu_backend(), 16, order, SumOrder::canonical, buffers, "test");
    CHECK(tree.size_bytes() == static_cast<std::size_t>(buffers) * 16 * sizeof(float));
  }
}

TEST_CASE("lane tree: sums that a rank holds and sends, of 4096 lanes", "[engine][lane_tree]") {
  struct Case {
    Radix radix;
    std::int64_t run;
    std::size_t sent;
    std::int64_t held;
  };
  // The worst of all ranks with runs of this length; one that sends several holds all of them.
  const Case one = GENERATE(
      Case{{2}, 16, 1, 4}, Case{{2}, 64, 1, 6}, Case{{2}, 256, 1, 8}, Case{{2}, 4096, 1, 12},
      Case{{16}, 16, 1, 1}, Case{{16}, 64, 4, 4}, Case{{16}, 256, 1, 2}, Case{{16}, 512, 2, 3},
      Case{{16}, 1024, 4, 5}, Case{{16}, 4096, 1, 3}, Case{{16, 2}, 64, 1, 3},
      Case{{16, 2}, 256, 1, 5}, Case{{16, 2}, 4096, 1, 9}, Case{{16, 4}, 16, 1, 1},
      Case{{16, 4}, 64, 1, 2}, Case{{16, 4}, 256, 1, 3}, Case{{16, 4}, 512, 2, 4},
      Case{{16, 4}, 1024, 1, 4}, Case{{16, 4}, 4096, 1, 5}, Case{{8, 4}, 16, 2, 2},
      Case{{8, 4}, 64, 2, 3}, Case{{8, 4}, 512, 1, 4}, Case{{8, 4}, 4096, 1, 6});
  const RadixTree order(4096, one.radix);
  std::size_t sent = 0;
  std::int64_t held = 0;
  for (std::int64_t first = 0; first < 4096; first += one.run) {
    const LaneRange run{first, one.run};
    sent = std::max(sent, order.partial_sums(run).size());
    held = std::max(held, lane_tree_buffers(single_lanes(run), order, SumOrder::canonical));
  }
  CAPTURE(one.radix, one.run);
  CHECK(sent == one.sent);
  CHECK(held == one.held);
}

TEST_CASE("lane tree: what is no partial sum, or comes too late, is refused",
          "[engine][lane_tree]") {
  const auto stream = kernels::make_inline_stream(1);
  LaneTree tree(kernels::cpu_backend(), 16, RadixTree(4), SumOrder::canonical, 2, "test");
  std::vector<float> elsewhere(16);
  CHECK_THROWS_AS(tree.place({1, 2}, nullptr), CheckFailed);
  CHECK_THROWS_AS(tree.finalize(*stream, {0, 1}, elsewhere.data()), CheckFailed);
  tree.add(*stream, {1, 1}, elsewhere.data());
  CHECK_THROWS_AS(tree.add(*stream, {0, 1}, elsewhere.data()), CheckFailed);
  tree.add(*stream, {2, 1}, elsewhere.data());
  CHECK(tree.held().size() == 2);
  CHECK_THROWS_AS(
      LaneTree(kernels::cpu_backend(), 16, RadixTree(4), SumOrder::canonical, 0, "test"),
      CheckFailed);
}

TEST_CASE("lane tree: the host's sum of doubles is the same tree", "[engine][lane_tree][EN-1]") {
  const std::vector<double> values = {1e16, 1.0, -1e16, 1.0, 3.0};
  CHECK(tree_sum(values.data(), 5) == (((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0));
  CHECK(tree_sum(values.data(), 3, 2) == ((1e16 + -1e16) + 3.0));
  CHECK(tree_sum(values.data(), 0) == 0.0);
  double on_device = 0.0;
  const auto stream = kernels::make_inline_stream(1);
  kernels::cpu_backend().tree_sum(
      *stream, {.sums = {{.values = values.data(), .out = &on_device, .count = 5}}});
  CHECK(on_device == tree_sum(values.data(), 5));
  kernels::cpu_backend().tree_sum(
      *stream, {.sums = {{.values = values.data(), .out = &on_device, .count = 3, .stride = 2}}});
  CHECK(on_device == tree_sum(values.data(), 3, 2));
}

}  // namespace train::engine::lane_tree_test
