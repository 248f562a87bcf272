#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace train::engine {

/// Lanes [first, first + count).
struct LaneRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t end() const { return first + count; }
  friend bool operator==(const LaneRange&, const LaneRange&) = default;
};

/// Size of the left child of a node of `count` in the canonical binary tree, which is RadixTree of
/// radix [2]: the largest power of two below it. REQUIRES: count > 1.
[[nodiscard]] constexpr std::int64_t left_count(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
}

/// Tree over [0, leaves) in which a node of level j is radix[0] * .. * radix[j-1] consecutive
/// leaves (the last radix repeats; the last node of a level may have fewer). Its sum is the sums of
/// its children, added left to right: ((a + b) + c) + d.
///
/// A partial sum is that of a node, or of the first children of a node: the only ranges whose sum
/// is a value on the way to the root's. Pure.
class RadixTree {
 public:
  /// REQUIRES: leaves >= 0, every radix >= 2 and at least one.
  explicit RadixTree(std::int64_t leaves, const std::vector<std::int64_t>& radix = {2});

  [[nodiscard]] std::int64_t leaves() const { return leaves_; }
  /// Leaves of a complete node of level 1.
  [[nodiscard]] std::int64_t node_leaves() const { return node_leaves_; }
  [[nodiscard]] bool is_partial_sum(LaneRange range) const;
  /// True if the sum of `right` is the next summand of the node whose first children `left` is.
  /// REQUIRES: partial sums.
  [[nodiscard]] bool joins(LaneRange left, LaneRange right) const;
  /// The fewest partial sums that make up `range`, left to right; none for an empty range.
  [[nodiscard]] std::vector<LaneRange> partial_sums(LaneRange range) const;

 private:
  [[nodiscard]] bool is_node(LaneRange range, std::int64_t size) const;

  std::int64_t leaves_;
  std::int64_t node_leaves_;
  std::vector<std::int64_t> sizes_;  ///< Leaves of a complete node by level, up to the root's.
};

}  // namespace train::engine
