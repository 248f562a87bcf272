#include "engine/sharding/radix_tree.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::engine {

RadixTree::RadixTree(std::int64_t leaves, const std::vector<std::int64_t>& radix)
    : leaves_(leaves), sizes_({1}) {
  TRAIN_CHECK(leaves >= 0 && !radix.empty() && std::ranges::min(radix) >= 2,
              "{} leaves, {} radices", leaves, radix.size());
  node_leaves_ = radix.front();
  while (sizes_.back() < leaves) {
    sizes_.push_back(sizes_.back() * radix[std::min(sizes_.size(), radix.size()) - 1]);
  }
}

bool RadixTree::is_node(LaneRange range, std::int64_t size) const {
  return range.first % size == 0 && range.end() == std::min(range.first + size, leaves_);
}

bool RadixTree::is_partial_sum(LaneRange range) const {
  return range.count > 0 && range.first >= 0 && range.end() <= leaves_ &&
         partial_sums(range).size() == 1;
}

bool RadixTree::joins(LaneRange left, LaneRange right) const {
  if (left.count <= 0 || right.count <= 0 || left.end() != right.first) {
    return false;
  }
  for (std::size_t level = 0; level + 1 < sizes_.size(); ++level) {
    const std::int64_t parent = sizes_[level + 1];
    if (is_node(right, sizes_[level]) && left.first == right.first / parent * parent) {
      return true;
    }
  }
  return false;
}

std::vector<LaneRange> RadixTree::partial_sums(LaneRange range) const {
  std::vector<LaneRange> sums;
  if (range.count > 0) {
    TRAIN_CHECK(range.first >= 0 && range.end() <= leaves_, "lanes {}..{} of {}", range.first,
                range.end(), leaves_);
  }
  // The longest one at each place: what begins inside it ends inside it, so none is saved later.
  for (std::int64_t first = range.first; first < range.end();) {
    std::int64_t end = first + 1;
    for (std::size_t level = 1; level < sizes_.size() && first % sizes_[level] == 0; ++level) {
      const std::int64_t node_end = std::min(first + sizes_[level], leaves_);
      const std::int64_t child = sizes_[level - 1];
      end = node_end <= range.end() ? node_end
                                    : std::max(end, first + (range.end() - first) / child * child);
    }
    sums.push_back({first, end - first});
    first = end;
  }
  return sums;
}

}  // namespace train::engine
