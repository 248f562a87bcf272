#include "engine/rank/exec/totals/nonfinite_counts.hpp"

#include "base/text/byte_sizes.hpp"

namespace train::engine {

NonfiniteCounts::NonfiniteCounts(const RankPlan& rank)
    : rank_(&rank),
      counts_(rank.kernels(),
              bytes_of(rank.layout().lane_block(rank.ranks()),
                       2 * rank.unit_count() * sizeof(std::int64_t)),
              "non-finite counts") {
  lane_at_.resize(static_cast<std::size_t>(rank.layout().lane_block(rank.ranks())));
  for (std::int64_t from = 0; from < rank.ranks(); ++from) {
    std::int64_t index = rank.layout().lane_block(from);
    for (const std::int64_t lane : rank.plan().train_lanes().lanes_of(from)) {
      lane_at_[static_cast<std::size_t>(lane)] = index++;
    }
  }
}

std::size_t NonfiniteCounts::index_of(std::int64_t lane, std::size_t unit, bool backward) const {
  const auto index = static_cast<std::size_t>(lane_at_[static_cast<std::size_t>(lane)]);
  return (index * 2 + (backward ? 1 : 0)) * rank_->unit_count() + unit;
}

std::int64_t* NonfiniteCounts::count(const LaneWork& work, std::size_t unit, bool backward) const {
  return counts_.device<std::int64_t>() + index_of(work.lane, unit, backward);
}

void NonfiniteCounts::counted(kernels::Stream& stream, const std::int64_t* count) const {
  counts_.to_host(stream, count);
}

std::span<std::byte> NonfiniteCounts::block(std::int64_t rank) const {
  const std::int64_t first = rank_->layout().lane_block(rank);
  const std::size_t lane = 2 * rank_->unit_count() * sizeof(std::int64_t);
  return {counts_.host<std::byte>() + bytes_of(first, lane),
          bytes_of(rank_->layout().lane_block(rank + 1) - first, lane)};
}

NonfiniteOrigin NonfiniteCounts::origin() const {
  const auto* counts = counts_.host<std::int64_t>();
  for (std::int64_t lane = 0; lane < rank_->plan().train_lanes().lanes(); ++lane) {
    for (std::size_t unit = 0; unit < rank_->unit_count(); ++unit) {
      if (counts[index_of(lane, unit, false)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = false};
      }
    }
    for (std::size_t unit = rank_->unit_count(); unit-- > 0;) {
      if (counts[index_of(lane, unit, true)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = true};
      }
    }
  }
  return {};
}

}  // namespace train::engine
