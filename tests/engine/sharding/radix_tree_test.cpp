#include "engine/sharding/radix_tree.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/check.hpp"

namespace train::engine::radix_tree_test {
namespace {

using Radix = std::vector<std::int64_t>;
using Ranges = std::vector<LaneRange>;

const std::vector<Radix> kRadices = {{2}, {3}, {16}, {4, 2}, {2, 3}, {5, 2, 4}};

bool contains(const Ranges& ranges, LaneRange range) {
  return std::find(ranges.begin(), ranges.end(), range) != ranges.end();
}

/// The ranges of a binary tree, split at the largest power of two below the count.
Ranges halves_of(std::int64_t lanes) {
  Ranges nodes;
  const std::function<void(LaneRange)> visit = [&](LaneRange node) {
    nodes.push_back(node);
    if (node.count < 2) {
      return;
    }
    std::int64_t left = 1;
    while (2 * left < node.count) {
      left *= 2;
    }
    visit({node.first, left});
    visit({node.first + left, node.count - left});
  };
  visit({0, lanes});
  return nodes;
}

/// The nodes of one level after the other, each a list of its children, from the definition.
struct Defined {
  Ranges partial;                                       ///< Nodes and first children of nodes.
  std::vector<std::pair<LaneRange, LaneRange>> joined;  ///< First children, and the next one.
};

Defined define(std::int64_t lanes, const Radix& radix) {
  Defined defined;
  Ranges level;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    level.push_back({lane, 1});
  }
  defined.partial = level;
  for (std::size_t j = 0; level.size() > 1; ++j) {
    const auto children = static_cast<std::size_t>(radix[std::min(j, radix.size() - 1)]);
    Ranges above;
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (i % children == 0) {
        above.push_back(level[i]);
        continue;
      }
      defined.joined.emplace_back(above.back(), level[i]);
      above.back().count += level[i].count;
      defined.partial.push_back(above.back());
    }
    level = above;
  }
  return defined;
}

/// Fewest partial sums that tile [first, end): by trying all.
std::size_t fewest(const Ranges& partial, std::int64_t first, std::int64_t end) {
  std::vector<std::size_t> best(static_cast<std::size_t>(end - first) + 1, SIZE_MAX - 1);
  best.back() = 0;
  for (std::int64_t i = end - 1; i >= first; --i) {
    for (const LaneRange& sum : partial) {
      if (sum.first == i && sum.end() <= end) {
        auto& here = best[static_cast<std::size_t>(i - first)];
        here = std::min(here, 1 + best[static_cast<std::size_t>(sum.end() - first)]);
      }
    }
  }
  return best.front();
}

}  // namespace

TEST_CASE("radix tree: partial sums are told from other ranges", "[engine][radix_tree][EN-1]") {
  for (const Radix& radix : kRadices) {
    for (std::int64_t lanes = 1; lanes <= 40; ++lanes) {
      const RadixTree tree(lanes, radix);
      const Ranges partial = define(lanes, radix).partial;
      for (std::int64_t first = 0; first < lanes; ++first) {
        for (std::int64_t count = 1; first + count <= lanes; ++count) {
          CAPTURE(radix, lanes, first, count);
          CHECK(tree.is_partial_sum({first, count}) == contains(partial, {first, count}));
        }
      }
      CHECK_FALSE(tree.is_partial_sum({0, lanes + 1}));
      CHECK_FALSE(tree.is_partial_sum({-1, 1}));
      CHECK_FALSE(tree.is_partial_sum({0, 0}));
      CHECK(tree.is_partial_sum({0, lanes}));
    }
  }
}

TEST_CASE("radix tree: with radix 2 its sums are the nodes of the binary tree",
          "[engine][radix_tree][EN-1]") {
  for (std::int64_t lanes = 1; lanes <= 129; ++lanes) {
    const Ranges nodes = halves_of(lanes);
    const Ranges partial = define(lanes, {2}).partial;
    for (const LaneRange& node : nodes) {
      CHECK(contains(partial, node));
    }
    for (const LaneRange& sum : partial) {
      CHECK(contains(nodes, sum));
    }
  }
}

TEST_CASE("radix tree: partial sums tile a range with the fewest", "[engine][radix_tree][EN-1]") {
  for (const Radix& radix : kRadices) {
    for (const std::int64_t lanes : {1, 2, 7, 16, 19, 33, 40}) {
      const RadixTree tree(lanes, radix);
      const Ranges partial = define(lanes, radix).partial;
      for (std::int64_t first = 0; first < lanes; ++first) {
        CHECK(tree.partial_sums({first, 0}).empty());
        for (std::int64_t end = first + 1; end <= lanes; ++end) {
          const auto found = tree.partial_sums({first, end - first});
          std::int64_t next = first;
          for (const LaneRange& sum : found) {
            CHECK(sum.first == next);
            CHECK(contains(partial, sum));
            next = sum.end();
          }
          CAPTURE(radix, lanes, first, end);
          CHECK(next == end);
          CHECK(found.size() == fewest(partial, first, end));
        }
      }
    }
  }
}

TEST_CASE("radix tree: a sum joins the first children of its node, and nothing else",
          "[engine][radix_tree][EN-1]") {
  for (const Radix& radix : kRadices) {
    for (std::int64_t lanes = 2; lanes <= 24; ++lanes) {
      const RadixTree tree(lanes, radix);
      const Defined defined = define(lanes, radix);
      for (const LaneRange& left : defined.partial) {
        for (const LaneRange& right : defined.partial) {
          const std::pair pair{left, right};
          CAPTURE(radix, lanes, left.first, left.count, right.first, right.count);
          CHECK(tree.joins(left, right) == (std::find(defined.joined.begin(), defined.joined.end(),
                                                      pair) != defined.joined.end()));
        }
      }
    }
  }
}

TEST_CASE("radix tree: without leaves it has no sums", "[engine][radix_tree]") {
  const RadixTree tree(0);
  CHECK(tree.leaves() == 0);
  CHECK(tree.partial_sums({0, 0}).empty());
  CHECK_FALSE(tree.is_partial_sum({0, 1}));
  CHECK_THROWS_AS(tree.partial_sums({0, 1}), CheckFailed);
  CHECK_THROWS_AS(RadixTree(4, {}), CheckFailed);
  CHECK_THROWS_AS(RadixTree(4, {2, 1}), CheckFailed);
}

}  // namespace train::engine::radix_tree_test
