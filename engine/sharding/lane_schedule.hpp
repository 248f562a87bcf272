#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/sharding/radix_tree.hpp"

namespace train::engine {

/// Which rank computes which lane when. Pure.
///
/// A command's lanes are cut into syncs: after each one gradients are sent to the owners of their
/// rows. In a sync the ranks, in their order, take consecutive runs of lanes, so that ranks hold
/// whole nodes of the tree over lanes where the numbers allow it. Every rank goes through every
/// round; where there is no lane left for it, it computes nothing but takes part in the round's
/// collectives.
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
