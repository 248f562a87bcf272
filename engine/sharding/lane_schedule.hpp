#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace train::engine {

/// Lanes [first, first + count).
struct LaneRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t end() const { return first + count; }
  friend bool operator==(const LaneRange&, const LaneRange&) = default;
};

/// Size of the left child of a node of `count` in the canonical binary tree: the largest power of
/// two below it. REQUIRES: count > 1.
[[nodiscard]] constexpr std::int64_t left_count(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
}

/// True if `range` is a node of the canonical binary tree over [0, lanes).
[[nodiscard]] bool is_subtree(LaneRange range, std::int64_t lanes);
/// True if `left` and `right` are the two children of one node of that tree.
[[nodiscard]] bool are_siblings(LaneRange left, LaneRange right, std::int64_t lanes);
/// The fewest nodes of the tree that make up `range`, left to right; none for an empty range.
[[nodiscard]] std::vector<LaneRange> subtrees(LaneRange range, std::int64_t lanes);

/// Which rank computes which lane when. Pure.
///
/// A command's lanes are cut into syncs: after each one gradients are sent to the owners of their
/// rows. In a sync the ranks, in their order, take consecutive runs of lanes, so that ranks hold
/// whole subtrees where the numbers allow it. Every rank goes through every round; where there is
/// no lane left for it, it computes nothing but takes part in the round's collectives.
class LaneSchedule {
 public:
  /// `rounds_per_sync`: lanes of a rank between two syncs; 0: all of them (one sync).
  LaneSchedule(std::int64_t lanes, std::int64_t ranks, std::int64_t rounds_per_sync);

  [[nodiscard]] std::int64_t lanes() const { return lanes_; }
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  [[nodiscard]] std::int64_t syncs() const;
  [[nodiscard]] std::int64_t sync_of(std::int64_t round) const;
  /// The lane of `rank` in `round`, if there is one.
  [[nodiscard]] std::optional<std::int64_t> lane(std::int64_t rank, std::int64_t round) const;
  /// The lanes of `rank` in `sync` (count may be 0).
  [[nodiscard]] LaneRange lanes_of(std::int64_t rank, std::int64_t sync) const;
  /// All lanes of `rank`, in the order of its rounds.
  [[nodiscard]] std::vector<std::int64_t> lanes_of(std::int64_t rank) const;
  /// The rank that has `lane`. REQUIRES: one of lanes().
  [[nodiscard]] std::int64_t rank_of(std::int64_t lane) const;
  /// The last round of `sync` in which `rank` has a lane; -1: none.
  [[nodiscard]] std::int64_t last_round_of(std::int64_t rank, std::int64_t sync) const;

 private:
  std::int64_t lanes_;
  std::int64_t ranks_;
  std::int64_t rounds_per_sync_;
  std::int64_t rounds_ = 0;
};

}  // namespace train::engine
